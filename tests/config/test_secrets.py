"""Secrets: references are filled in when a server needs them, and their values are printed nowhere."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold.audit.redaction import Redactor
from toolfold.config import Settings, missing, redact, resolve
from toolfold.config.secrets import _input_variable, _parse_env_file, find_plain_secrets, is_secret_name, redact_secrets
from toolfold.config.sections import Model
from toolfold.errors import SecretNotFound
from toolfold.types import ServerSpec


def nothing(service: str, name: str) -> str | None:
    return None


def stdio(**env: str) -> ServerSpec:
    return ServerSpec(name="a", transport="stdio", command="x", env=env)


@pytest.mark.requirement("G-06")
def test_every_form_of_a_reference_is_filled_in_and_its_value_listed_as_secret() -> None:
    spec = ServerSpec(
        name="a",
        transport="stdio",
        command="${BIN:-run}",
        args=("--token", "${env:TOKEN}", "$${NOT}", "${1}", "${HOME}/x"),
        env={"K": "${keyring:shop/api/key}", "I": "pre-${input:api-key}-post", "D": "${NONE:-a:b}"},
        headers={"Authorization": "Bearer ${TOKEN}"},
    )
    environ = {"TOKEN": "tok-123456", "TOOLFOLD_INPUT_API_KEY": "inp-123456", "HOME": "/home/me"}
    held = {("shop", "api/key"): "ring-123456"}
    filled = resolve(spec, environ=environ, keyring=lambda service, name: held.get((service, name)))
    assert filled.command == "run"
    assert filled.args == ("--token", "tok-123456", "${NOT}", "${1}", "/home/me/x")
    assert filled.env == {"K": "ring-123456", "I": "pre-inp-123456-post", "D": "a:b"}
    assert filled.headers == {"Authorization": "Bearer tok-123456"}
    assert set(filled.secrets) == {"tok-123456", "inp-123456", "ring-123456"}
    for text in (repr(filled), filled.shown(), str(filled)):
        assert "123456" not in text
    assert "/home/me/x" in filled.shown()


@pytest.mark.requirement("G-06")
def test_a_missing_secret_fails_the_one_server_that_needs_it_and_names_all_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "toolfold.toml").write_text(
        '[servers.a]\ncommand = "x"\nenv = { A = "${ONE}", B = "${input:Two Words}", C = "${keyring:s/n}" }\n'
        '[servers.b]\ncommand = "y"\n'
    )
    settings = Settings.load(environ={"HOME": str(tmp_path / "h"), "TOOLFOLD_TRUST_PROJECT": "1"}, cwd=tmp_path)
    broken, fine = settings.servers
    assert resolve(fine, environ={}).command == "y"
    assert missing(broken, environ={}) == ("ONE", "TOOLFOLD_INPUT_TWO_WORDS")
    with pytest.raises(SecretNotFound) as caught:
        resolve(broken, environ={}, keyring=nothing)
    error = caught.value
    assert "server 'a' needs the environment variable ONE, which is not set" in error.message
    assert "TOOLFOLD_INPUT_TWO_WORDS" in error.message
    assert "'s/n'" in error.message
    assert error.next_action.startswith("Set it: export ONE=")
    assert "keyring set s n" in error.hints[1]
    assert error.next_action not in error.hints, "whoever prints both would say it twice"


def test_what_only_an_editor_can_fill_in_is_told() -> None:
    with pytest.raises(SecretNotFound, match="which only an editor can fill in"):
        resolve(stdio(A="${command:some.extension}"), environ={})


@pytest.mark.requirement("G-06")
def test_without_the_keyring_package_or_a_back_end_the_error_says_what_to_install() -> None:
    code = """
import sys
from toolfold.config import resolve
from toolfold.errors import SecretNotFound
from toolfold.types import ServerSpec
spec = ServerSpec(name="a", transport="stdio", command="x", env={"A": "${keyring:s/n}"})
assert "keyring" not in sys.modules
if sys.argv[1] == "absent":
    sys.modules["keyring"] = None
else:
    import keyring, keyring.backends.fail
    keyring.set_keyring(keyring.backends.fail.Keyring())
try:
    resolve(spec, environ={})
except SecretNotFound as error:
    print(error.message, error.next_action)
"""
    said = {}
    for case in ("absent", "no-back-end"):
        done = subprocess.run(
            [sys.executable, "-c", code, case], capture_output=True, text=True, timeout=60, check=True
        )
        said[case] = done.stdout
    assert "pip install 'toolfold[keyring]'" in said["absent"]
    assert "no back-end works here" in said["no-back-end"]


def test_reading_settings_imports_nothing_heavy() -> None:
    code = "import sys; from toolfold.config import Settings; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"keyring", "rich", "httpx2", "mcp", "yaml", "asyncio", "tomllib", "difflib"}


def test_an_env_file_is_read_when_needed_and_env_wins_over_it(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "# a comment\nexport API_KEY='abc 123456'\nLEVEL=debug # loud\nnonsense\nA=file\n"
        "DOOR=open-sesame\nHOME=/home/somebody\n"
    )
    spec = ServerSpec(name="a", transport="stdio", command="x", env={"A": "own"}, env_file=str(tmp_path / ".env"))
    filled = resolve(spec, environ={})
    assert filled.env == {
        "API_KEY": "abc 123456",
        "LEVEL": "debug",
        "A": "own",
        "DOOR": "open-sesame",
        "HOME": "/home/somebody",
    }
    assert filled.secrets == ("abc 123456", "open-sesame")
    with pytest.raises(SecretNotFound, match="cannot be read"):
        resolve(ServerSpec(name="a", transport="stdio", command="x", env_file=str(tmp_path / "no")), environ={})


@given(text=st.text())
def test_any_text_is_an_env_file(text: str) -> None:
    assert all(name and isinstance(value, str) for name, value in _parse_env_file(text).items())


def test_an_inputs_id_has_one_documented_variable() -> None:
    assert _input_variable("perplexity-key") == "TOOLFOLD_INPUT_PERPLEXITY_KEY"
    assert _input_variable("a__b c") == "TOOLFOLD_INPUT_A_B_C"


@pytest.mark.requirement("G-06")
def test_printing_settings_shows_no_plain_secret(tmp_path: Path) -> None:
    from rich.console import Console
    from rich.pretty import Pretty

    (tmp_path / "toolfold.toml").write_text(
        """
        [servers.a]
        command = "npx"
        args = ["--api-key", "sesame-1", "--header", "Authorization: Bearer sesame-2", "postgres://u:sesame-3@h/db"]
        env = { GITHUB_TOKEN = "sesame-4", LEVEL = "debug" }
        [servers.b]
        url = "https://x.example/mcp?api_key=sesame-5"
        bearer_token = "sesame-6"
        [model]
        key = "sesame-7"
        """
    )
    settings = Settings.load(environ={"HOME": str(tmp_path / "h"), "TOOLFOLD_TRUST_PROJECT": "1"}, cwd=tmp_path)
    console = Console(width=200, record=True, file=(tmp_path / "out").open("w"))
    console.print(Pretty(settings, expand_all=True))
    console.file.close()
    for text in (repr(settings), str(settings), f"{settings.servers}", console.export_text()):
        assert "sesame" not in text
        assert "GITHUB_TOKEN" in text
    assert set(settings.servers[0].secrets) == {"sesame-1", "sesame-2", "sesame-3", "sesame-4"}
    assert set(settings.servers[1].secrets) == {"sesame-5", "sesame-6"}
    masker = Redactor(settings, {"SPARE": "spare-1"}.items())
    assert masker.text("sesame-1 and sesame-7") == "*** and ***"
    spare = Settings(model=Model(key="${SPARE}"))
    assert Redactor(spare, {"SPARE": "spare-1"}.items()).text("spare-1") == "***"


@pytest.mark.parametrize(
    "name",
    [
        "GITHUB_TOKEN",
        "apiKey",
        "X-API-Key",
        "--api-key",
        "DB_PASS",
        "password",
        "AUTH",
        "OPENAI_APIKEY",
        "PAT",
        "PGPASSWORD",
        "SSHPASS",
        "GITHUBTOKEN",
        "authtoken",
        "accesstoken",
        "clientsecret",
        "API_TOKENS",
        "PASSWORDS",
        "SECRETS",
        "auth_tokens",
        *(
            "DB_PW",
            "MYPW",
            "ADMIN_PIN",
            "ACCESS_CODE",
            "accessCode",
            "SMTP_PWD",
            "MYPWD",
            "X_PASS",
            "DBPASS",
            "PASSCODE",
        ),
        *(
            "LOGIN_PASSWD",
            "securityCode",
            "OTP",
            "GIT_CREDS",
            "AZURE_STORAGE_CONNECTION_STRING",
            "--pin",
            "RECOVERY_CODES",
        ),
    ],
)
def test_a_telling_name_is_a_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "MAX_TOKENS",
        "KEY_FILE",
        "PWD",
        "AUTH_TYPE",
        "PUBLIC_KEY",
        "ACCESS_KEY_ID",
        "KEYBOARD",
        "COMPASS",
        "",
        "--",
        "max_output_tokens",
        "maxtokens",
        "tokens_limit",
        "prompt-tokens",
        "num_tokens",
        "tokenizer",
        "secretary",
        *("BYPASS", "TRESPASS", "COUNTRY_CODE", "SPIN", "PINNED", "OPTION", "PIN_MODE", "ZIP_CODE", "OLD_PWD_DIR"),
    ],
)
def test_a_harmless_name_is_not(name: str) -> None:
    assert not is_secret_name(name)


def test_a_pin_is_a_secret_and_a_port_is_none() -> None:
    env = {"ADMIN_PIN": "4711", "ACCESS_CODE": "815815", "GPIO_PIN": "17", "KEY": "8080", "AUTH": "2024"}
    assert {plain.label for plain in find_plain_secrets({"env": env})} == {"ADMIN_PIN", "ACCESS_CODE"}


def test_a_token_of_known_form_is_found_whatever_its_name() -> None:
    token = "ghp_" + "a1B2" * 9
    table = {
        "args": ["run", "-e", f"X={token}", "--dir", "/srv/token"],
        "env": {"OTHER": token, "SSH_KEY": "/home/me/id"},
    }
    assert {plain.place for plain in find_plain_secrets(table)} == {("args", 2), ("env", "OTHER")}


@pytest.mark.requirement("G-06")
def test_every_secret_of_one_text_is_found_and_each_once() -> None:
    token = "ghp_" + "a1B2" * 9
    url = f"https://me:sesame-1@x.example/mcp?api_key=sesame-2&page=1&token=sesame-3&x={token}&secret={token}"
    values = ["sesame-1", "sesame-2", "sesame-3", token, token]
    for key in ("url", "base_url", "openapi", "command"):
        found = find_plain_secrets({key: url})
        assert [plain.value for plain in found] == [url[plain.start : plain.end] for plain in found] == values
        assert [plain.label for plain in found] == ["URL_PASSWORD", "api_key", "token", "TOKEN", "secret"]
    assert redact_secrets(url) == "https://me:***@x.example/mcp?api_key=***&page=1&token=***&x=***&secret=***"


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "part",
    [
        "a",
        "eyJ",
        "eyJ-",
        "://",
        "a://b:c",
        "a@",
        "sk-",
        "SG.",
        "SG.aaaaaaaaaaaaaaaaa",
        "?a",
        "&a=",
        "Bearer ",
        "bearer",
        "A",
        "eyJaaaaaaaaaa.",
        "ghp_",
        "xoxb-",
        " ",
        "a:",
        "pypi-",
        "token",
        "?token=",
        "://a:",
    ],
)
def test_no_text_makes_hiding_slow(part: str) -> None:
    """Where work grows with the square of the length, this takes minutes; else a moment."""
    text = part * (300_000 // len(part))
    for end in ("", " ://", "@", "!"):
        redact_secrets(text + end)


@given(secret=st.text(min_size=4).filter(lambda text: len(text.strip()) >= 4), before=st.text(), after=st.text())
def test_masked_text_never_holds_the_secret(secret: str, before: str, after: str) -> None:
    assert secret not in redact(f"{before}{secret}{after}", [secret], replacement="\0")


def test_a_secret_is_masked_where_it_stands_escaped_and_very_short_ones_are_left() -> None:
    assert redact('a "p\\"w%26&1"', ['p"w%26&1']) == 'a "***"'
    assert redact("GET /?k=p%2Fq%20r%3D", ["p/q r="]) == "GET /?k=***"
    assert redact("a 1 b", ["1", ""]) == "a 1 b"
    assert redact("long-secret", ["long", "long-secret"]) == "***"
