"""Numbers as the reports have them: medians, rounding, and tables."""

import math
import statistics


def median(values):
    """Of those that are known; None where none is."""
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def rounded(value, digits):
    return None if value is None else round(value, digits)


def medians(samples, contestants):
    """{contestant: median of its runs' medians}, of those that always gave right data."""
    result = {}
    for contestant in contestants:
        own = [sample for sample in samples if sample.contestant == contestant]
        if own and not any(sample.wrong for sample in own):
            result[contestant] = statistics.median(sample.us for sample in own)
    return result


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def size_text(size):
    for unit in ("", "K"):
        if size < 1024:
            return f"{size:g}{unit}"
        size /= 1024
    return f"{size:g}M"


def cell(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def time_cell(microseconds):
    return cell(microseconds, 1 if microseconds is not None and microseconds < 1000 else 0)


def percent_cell(fraction):
    return cell(None if fraction is None else 100 * fraction, 1)


def table(titles, lines):
    """Markdown that is also readable as it is."""
    lines = [titles, *lines]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]

    def text(line):
        return "| " + " | ".join(f"{word:>{width}}" for word, width in zip(line, widths)) + " |"

    rule = "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|"
    return "\n".join([text(titles), rule, *map(text, lines[1:])]) + "\n"


def verdict(reached, text):
    return f"{'reached    ' if reached else 'NOT reached'}  {text}"


def wrong_data(rows):
    wrong = sum(row["wrong"] for row in rows)
    return f"wrong data: {wrong} elements" if wrong else "no wrong data"


def wrong_peers(samples, peers):
    """A line that names those which medians() leaves out; empty where there are none."""
    wrong = [peer for peer in peers if any(sample.wrong for sample in samples if sample.contestant == peer)]
    return f"Peers with WRONG data, which do not count there: {', '.join(wrong)}\n" if wrong else ""
