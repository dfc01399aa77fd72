"""How well two ways of sorting the same things agree: purity, V-measure, adjusted mutual information.

Standard library only. The adjusted figure is 0 for chance and 1 for perfect agreement, whatever the number of groups.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from math import exp, lgamma, log

Labels = Sequence[Hashable]


def agreement(ours: Labels, theirs: Labels) -> dict[str, float]:
    """The figures between our groups and given categories, one label a thing each."""
    ours_sizes, theirs_sizes = Counter(ours), Counter(theirs)
    joint = Counter(zip(ours, theirs, strict=True))
    total = len(ours)
    shared = sum(n / total * log(n * total / (ours_sizes[a] * theirs_sizes[b])) for (a, b), n in joint.items())
    h_ours, h_theirs = _entropy(ours_sizes, total), _entropy(theirs_sizes, total)
    largest: dict[Hashable, int] = defaultdict(int)
    for (a, _), n in joint.items():
        largest[a] = max(largest[a], n)
    by_chance = _expected(list(ours_sizes.values()), list(theirs_sizes.values()), total)
    mean = (h_ours + h_theirs) / 2
    return {
        "purity": round(sum(largest.values()) / total, 4),
        "homogeneity": round(shared / h_theirs, 4) if h_theirs else 1.0,
        "completeness": round(shared / h_ours, 4) if h_ours else 1.0,
        "v_measure": round(shared / mean, 4) if mean else 1.0,
        "adjusted_mutual_information": round((shared - by_chance) / (mean - by_chance), 4) if mean > by_chance else 0.0,
    }


def _entropy(sizes: Counter[Hashable], total: int) -> float:
    return -sum(n / total * log(n / total) for n in sizes.values())


def _expected(rows: list[int], columns: list[int], total: int) -> float:
    """The mutual information that two sortings with these group sizes have by chance."""
    factorial = [lgamma(n + 1) for n in range(total + 1)]
    result = 0.0
    for (a, times_a), (b, times_b) in ((x, y) for x in Counter(rows).items() for y in Counter(columns).items()):
        fixed = factorial[a] + factorial[b] + factorial[total - a] + factorial[total - b] - factorial[total]
        cell = 0.0
        for n in range(max(1, a + b - total), min(a, b) + 1):
            chance = fixed - factorial[n] - factorial[a - n] - factorial[b - n] - factorial[total - a - b + n]
            if chance > -40:
                cell += exp(chance) * n / total * log(total * n / (a * b))
        result += cell * times_a * times_b
    return result
