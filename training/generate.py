# ruff: noqa: E501 - the prompts are long lines
"""Requests of our own making, written by a small local language model for each tool.

Four steps, since the machine with the accelerator has neither network nor tokenizer files:

    generate.py pack    GGUF FOLDER      here: split the model (1.5B, Apache-2.0) into parts of at most 62 MB
    generate.py prompts GGUF DATA FILE   here: token ids of one prompt a tool and of prompts for several tools
    generate.py run     MODEL FILE OUT   there: sample the answers (ids in, ids out)
    generate.py collect GGUF FILE OUT... here: answers to requests, one JSON line each

The vocabulary is cut to its first entries, which are the most common, to keep the model small on its way.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
import time
from pathlib import Path
from typing import Any

KEPT_TOKENS = 49152
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PART_BYTES = 62_000_000
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SYSTEM = (
    "You are given a tool. You write what five different people would say to an assistant that has this tool. They do not "
    "know the tool and never name it. They give real details such as names, places, dates, numbers, files."
)
SYSTEM_SEVERAL = (
    "You are given some tools. You write what two different people would say to an assistant. Each person wants several "
    "things in one message, so that all of the tools are needed. They never name a tool. They give real details."
)
# Our own examples: the same five manners each time (command, question, story, wish in other words, full details).
EXAMPLES = (
    (
        "Tool: split bill\nWhat it does: Divides a restaurant bill among guests, with tip.\nInputs: total (amount), guests, tip_percent",
        "1. Divide 84.50 by four people with 15% tip.\n2. How much does each of us owe if dinner was 132 euros and there were six at the table?\n"
        "3. We had lunch at Trattoria Roma with the whole team, nine of us, and it came to $311. Everybody wants to leave 20 percent for the waiter, so tell me what each person has to pay.\n"
        "4. Dinner's over and nobody wants to do the maths, help us pay fairly.\n5. The total is 58.20, there are 3 guests, and we want to add 10 percent; give me the share per head.",
    ),
    (
        "Tool: rotate pdf pages\nWhat it does: Rotate pages of a PDF document by a multiple of 90 degrees.\nInputs: path (input file); pages; angle; output_path",
        "1. Turn pages 3 to 5 of scan.pdf clockwise.\n2. Can you fix the orientation of /home/maria/contract.pdf? Page 2 is upside down.\n"
        "3. I scanned my lease this morning and half of it came out sideways. The file is lease_2021.pdf, please set all even pages upright before I send it to Mr. Hansen.\n"
        "4. My document is lying on its side and I keep tilting my head to read it.\n5. Take report.pdf, rotate page 1 by 270 degrees, and save the result as report_fixed.pdf.",
    ),
    (
        "Tool: list orders\nWhat it does: Lists the orders of a shop, optionally filtered by status and customer.\nInputs: status (open, shipped, cancelled); customer_id; limit",
        "1. Show me all open orders.\n2. Which purchases by customer 8821 have already been shipped?\n"
        "3. Our warehouse in Lyon starts packing at six tomorrow. I need to know what is still waiting to go out so that I can plan the staff.\n"
        "4. What have people bought from us lately?\n5. Give me the last 20 cancelled orders of customer C-104.",
    ),
    (
        "Tool: star chart\nWhat it does: Returns the constellations visible from a place at a given time.\nInputs: latitude; longitude; time",
        "1. Constellations over Oslo tonight.\n2. Will Orion be up when I am camping near Flagstaff on 12 December at 10 pm?\n"
        "3. My daughter got a telescope for her birthday and we are going to my parents' farm outside Bologna on Saturday. What can we look for in the sky around nine?\n"
        "4. I want to impress my date on the roof with some astronomy.\n5. What is visible from latitude 35.2, longitude -111.6 at 2024-03-02 23:00?",
    ),
)
EXAMPLES_SEVERAL = (
    (
        "Tool 1: star chart: Returns the constellations visible from a place at a given time.\nTool 2: find campsite: Search campsites near a place.",
        "1. We are driving to Flagstaff for the weekend of 12 December. Find us somewhere to pitch a tent nearby, and tell me which constellations we could see from there at 10 pm.\n"
        "2. Look up camping places around Bologna, and what is in the night sky there this Saturday?",
    ),
    (
        "Tool 1: list orders: Lists the orders of a shop.\nTool 2: create invoice: Makes an invoice for an order.\nTool 3: send email: Sends an email.",
        "1. Which orders of customer 8821 were shipped last week? Write a bill for the newest one and mail it to anna@lindgren.se.\n"
        "2. I have to close the month. Show me what was sold in March, prepare an invoice over the order 5531, and let our accountant Mr. Weber know by e-mail that it is done.",
    ),
)
ONE = "Tool: {name}\nWhat it does: {description}\nInputs: {inputs}"


def _reader(path: str) -> Any:
    from gguf import GGUFReader

    return GGUFReader(path)


def tokenizer(path: str) -> Any:
    """The model's own tokenizer, cut to the kept entries. Special tokens follow the last kept one."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    fields = _reader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()[:KEPT_TOKENS]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    merges = []
    for line in fields["tokenizer.ggml.merges"].contents():
        left, right = line.split(" ")
        if left in vocabulary and right in vocabulary and left + right in vocabulary:
            merges.append((left, right))
    built = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens(list(SPECIAL))
    return built


def pack(path: str, folder: str) -> None:
    """Write the tensors' raw bytes into parts, and an index. The output matrix serves as embedding too (they are tied)."""
    import numpy as np

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    index, blob = [], []
    offset = 0
    for tensor in _reader(path).tensors:
        if tensor.name == "token_embd.weight":
            continue
        data = np.asarray(tensor.data)
        shape = [int(size) for size in reversed(tensor.shape)]
        if tensor.name == "output.weight":
            rows = [*range(KEPT_TOKENS), 151643, 151644, 151645]
            data, shape = data[rows], [len(rows), shape[1]]
        raw = data.tobytes()
        index.append([tensor.name, tensor.tensor_type.name, shape, offset, len(raw)])
        blob.append(raw)
        offset += len(raw)
    whole = b"".join(blob)
    for number, start in enumerate(range(0, len(whole), PART_BYTES)):
        (target / f"p{number:02d}").mkdir(exist_ok=True)
        (target / f"p{number:02d}" / "part.bin").write_bytes(whole[start : start + PART_BYTES])
    (target / "index.json").write_text(json.dumps(index))


def prompts(path: str, data: str, out: str) -> None:
    """Token ids of all prompts, with the keys of the tools that each is about."""
    from data import training_corpus, words

    built = tokenizer(path)
    tools = training_corpus(Path(data)).tools
    chance = random.Random(7)

    def chat(text: str, system: str, examples: tuple[tuple[str, str], ...]) -> list[int]:
        turns = [("system", system)]
        for given, answer in chance.sample(examples, min(2, len(examples))):
            turns += [("user", given), ("assistant", answer)]
        whole = "".join(f"<|im_start|>{who}\n{said}<|im_end|>\n" for who, said in [*turns, ("user", text)])
        return list(built.encode(f"{whole}<|im_start|>assistant\n").ids)

    def brief(key: str, size: int) -> str:
        return " ".join(tools[key].description.split())[:size] or words(tools[key].name)

    rows: list[dict[str, Any]] = []
    for key, tool in tools.items():
        inputs = "; ".join(f"{name} ({about[:60]})" if about else name for name, about in tool.parameters[:8]) or "none"
        text = ONE.format(name=words(tool.name), description=brief(key, 500), inputs=inputs[:400])
        rows.append({"tools": [key], "ids": chat(text, SYSTEM, EXAMPLES)})
    groups: dict[str, list[str]] = {}
    for key, tool in tools.items():
        groups.setdefault(f"{tool.source}/{tool.group}", []).append(key)
    keys = list(tools)
    for _ in range(5000):
        size = chance.choice((2, 2, 3))
        first = chance.choice(keys)
        near = groups[f"{tools[first].source}/{tools[first].group}"]
        far = [key for key in chance.sample(keys, 40) if tools[key].source == tools[first].source]
        pool = near if len(near) >= size and chance.random() < 0.7 else far
        rest = [key for key in chance.sample(pool, min(len(pool), size)) if key != first][: size - 1]
        chosen = [first, *rest]
        listed = "\n".join(f"Tool {n}: {words(tools[k].name)}: {brief(k, 220)}" for n, k in enumerate(chosen, 1))
        if len(chosen) > 1:
            rows.append({"tools": chosen, "ids": chat(listed, SYSTEM_SEVERAL, EXAMPLES_SEVERAL)})
    Path(out).write_bytes(gzip.compress(json.dumps(rows).encode()))
    print(len(rows), sum(len(row["ids"]) for row in rows))


def _q4_k(raw: Any) -> Any:
    """Blocks of 256 weights in 144 bytes: two scales, twelve bytes of 6-bit scales, 128 bytes of 4-bit values."""
    import torch

    b = raw.view(-1, 144)
    halves = b[:, :4].contiguous().view(torch.float16).float()
    s = b[:, 4:16].int()
    scale = torch.cat([s[:, 0:4] & 63, (s[:, 8:12] & 15) | ((s[:, 0:4] >> 6) << 4)], 1)
    least = torch.cat([s[:, 4:8] & 63, (s[:, 8:12] >> 4) | ((s[:, 4:8] >> 6) << 4)], 1)
    q = b[:, 16:].view(-1, 4, 32)
    values = torch.stack([q & 15, q >> 4], 2).view(-1, 8, 32).float()
    return (halves[:, :1] * scale).unsqueeze(-1) * values - (halves[:, 1:] * least).unsqueeze(-1)


def _q6_k(raw: Any) -> Any:
    """Blocks of 256 weights in 210 bytes: low 4 bits, high 2 bits, sixteen int8 scales, one scale."""
    import torch

    b = raw.view(-1, 210)
    low, high = b[:, :128].view(-1, 2, 64), b[:, 128:192].view(-1, 2, 32)
    scale = b[:, 192:208].contiguous().view(torch.int8).float()
    whole = b[:, 208:210].contiguous().view(torch.float16).float()
    parts = [
        (low[:, :, :32] & 15) | ((high & 3) << 4),
        (low[:, :, 32:] & 15) | (((high >> 2) & 3) << 4),
        (low[:, :, :32] >> 4) | (((high >> 4) & 3) << 4),
        (low[:, :, 32:] >> 4) | (((high >> 6) & 3) << 4),
    ]
    values = torch.stack(parts, 2).view(-1, 16, 16).float() - 32
    return (whole * scale).unsqueeze(-1) * values


NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def load(folder: str, device: str) -> Any:
    """The packed model, in bfloat16."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    parts = sorted(Path(folder).glob("p*/part.bin"))
    whole = torch.frombuffer(bytearray(b"".join(part.read_bytes() for part in parts)), dtype=torch.uint8)
    state = {}
    for name, kind, shape, offset, size in json.loads((Path(folder) / "index.json").read_text()):
        raw = whole[offset : offset + size].to(device)
        opened = {"F32": lambda given: given.clone().view(torch.float32), "Q4_K": _q4_k, "Q6_K": _q6_k}[kind](raw)
        value = opened.reshape(shape).bfloat16()
        if name.startswith("blk."):
            _, layer, part, end = name.split(".")
            state[f"model.layers.{layer}.{NAMES[part]}.{end}"] = value
        elif name == "output.weight":
            state["model.embed_tokens.weight"] = state["lm_head.weight"] = value
        else:
            state["model.norm.weight"] = value
    config = Qwen2Config(
        vocab_size=KEPT_TOKENS + 3, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28,
        num_attention_heads=12, num_key_value_heads=2, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        max_position_embeddings=4096, rms_norm_eps=1e-6, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.device(device):
        model: Any = Qwen2ForCausalLM(config).bfloat16()  # type: ignore[no-untyped-call]  # theirs
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or [name for name in missing if "inv_freq" not in name]:
        raise ValueError(f"missing {missing[:3]}, unexpected {unexpected[:3]}")
    return model.to(device).eval()


def run(
    folder: str, source: str, out: str, *, device: str = "cuda", batch: int = 1536, limit_s: float = 320, first: int = 0
) -> None:
    """Sample an answer for each prompt, the longest prompts last; stop in time and keep what is there."""
    import torch

    started = time.monotonic()
    model = load(folder, device)
    print(f"loaded after {time.monotonic() - started:.1f} s", flush=True)
    rows = json.loads(gzip.decompress(Path(source).read_bytes()))
    random.Random(3).shuffle(rows)
    rows = sorted(rows, key=lambda row: len(row["tools"]) > 1)[: first or len(rows)]
    end, pause = KEPT_TOKENS + 2, KEPT_TOKENS
    answers: list[dict[str, Any]] = []
    torch.manual_seed(11)
    for start in range(0, len(rows), batch):
        part = sorted(rows[start : start + batch], key=lambda row: len(row["ids"]))
        width = max(len(row["ids"]) for row in part)
        ids = torch.full((len(part), width), pause)
        mask = torch.zeros(len(part), width, dtype=torch.long)
        for index, row in enumerate(part):
            ids[index, width - len(row["ids"]) :] = torch.tensor(row["ids"])
            mask[index, width - len(row["ids"]) :] = 1
        with torch.no_grad():
            got = model.generate(
                input_ids=ids.to(device), attention_mask=mask.to(device), max_new_tokens=200, do_sample=True,
                temperature=0.85, top_k=50, eos_token_id=end, pad_token_id=pause,
            )  # fmt: skip
        for row, answer in zip(part, got[:, width:].tolist(), strict=True):
            kept = answer[: answer.index(end)] if end in answer else [*answer, -1]
            answers.append({"tools": row["tools"], "ids": kept})
        spent = time.monotonic() - started
        print(f"{len(answers)} of {len(rows)} after {spent:.0f} s", flush=True)
        Path(out).write_bytes(gzip.compress(json.dumps(answers).encode(), 4))
        if spent + spent / (start / batch + 1) > limit_s:
            break


NUMBERED = re.compile(r"^\s*\**(\d)[.):]\**\s*(.+?)\s*$")


def collect(path: str, source: str, *outs: str) -> None:
    """Answers to lines of `{"text", "tools", "style"}`. An answer cut off loses its last line."""
    built = tokenizer(path)
    with Path(source).open("w") as file:
        for row in [row for out in outs for row in json.loads(gzip.decompress(Path(out).read_bytes()))]:
            cut = bool(row["ids"]) and row["ids"][-1] == -1
            lines = built.decode([one for one in row["ids"] if one >= 0]).splitlines()
            for line in lines[:-1] if cut else lines:
                found = NUMBERED.match(line)
                text = (
                    re.sub(r"^\**(Short command|Question|[A-Z][a-z ]{2,18}):\**\s+", "", found[2]).strip(' "*')
                    if found
                    else ""
                )
                if found and 2 <= len(text.split()) <= 90:
                    file.write(json.dumps({"text": text, "tools": row["tools"], "style": int(found[1])}) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:5], first=int(sys.argv[5]) if len(sys.argv) > 5 else 0)
    else:
        steps: dict[str, Any] = {"pack": pack, "prompts": prompts, "collect": collect}
        steps[sys.argv[1]](*sys.argv[2:])
