"""What was measured, in words: a row is a model, batch and phase, as compare.py makes it."""

import os
import statistics

BEGIN, END = "<!-- compare_peers: begin -->", "<!-- compare_peers: end -->"


def every(side):
    return [sample for samples in side["samples"] for sample in samples]


def median_ms(side):
    return statistics.median(every(side))


def ratios(ours, peer):
    """Of the rounds' medians, and of minima."""
    rounds = [statistics.median(a) / statistics.median(b) for a, b in zip(ours["samples"], peer["samples"])]
    return statistics.median(rounds), min(every(ours)) / min(every(peer))


def best_of(row):
    return min(row["peers"].values(), key=median_ms)


def milliseconds(value):
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def both(side):
    return f"{milliseconds(min(every(side)))} / {milliseconds(median_ms(side))}"


def lines(row):
    found = []
    for side in [row["ours"]] * bool(row["ours"]) + list(row["peers"].values()):
        of_medians, of_minima = ratios(row["ours"], side)
        found.append(f"  {side['name']} ({side['setting']}): min {min(every(side)):.4g}, median {median_ms(side):.4g} "
                     f"ms; {side['memory_mib']:.0f} MiB above the {side['start_mib']:.0f} at its start; ms to start "
                     f"{side['start_ms']:.0f}, to the first loss {side['make_ms']:.0f}")
        if side is not row["ours"]:
            found[-1] += f"; ours / it: median of pairs {of_medians:.3f}, of minima {of_minima:.3f}"
    if row["peers"]:
        best = best_of(row)
        of_medians, of_minima = ratios(row["ours"], best)
        found.append(f"  ours / best peer ({best['name']}): {of_medians:.3f}, of minima {of_minima:.3f}")
    if row["error"]:
        found.append(f"  ERROR: {row['error']}")
    return found


def markdown(result):
    """A table of all rows, and below it what was left out."""
    page = [f"{result['machine']}, {result['threads']} threads, {result['date']}, {result['rounds']} rounds; "
             f"commit {result['commit']}.", f"Settings searched: {result['search']}. Times are min / median in ms.", ""]
    page += ["| | ours | best peer, and its setting | | ours / it: median of pairs (minima) | ours / other peers "
              "| MiB above the start: ours, best, leanest peer | ms to start, and to the first loss: ours; best |",
              "|---|---|---|---|---|---|---|---|"]
    for row in result["rows"]:
        what = f"{row['phase']}, {row['model']} b{row['batch']}" + f", {row['variant']}" * bool(row["variant"])
        if row["error"] or not row["peers"]:
            page.append(f"| {what} | " + (f"error: {row['error']}" if row["error"] else "no peer") + " |" + " |" * 6)
            continue
        ours, best = row["ours"], best_of(row)
        leanest = min(row["peers"].values(), key=lambda side: side["memory_mib"])
        of_medians, of_minima = ratios(ours, best)
        others = ", ".join(f"{side['name']} {ratios(ours, side)[0]:.2f}" for side in row["peers"].values()
                           if side is not best)
        starts = "; ".join(f"{side['start_ms']:.0f}, {side['make_ms']:.0f}" for side in (ours, best))
        page.append(f"| {what} | {both(ours)} | {best['name']}: {best['setting']} | {both(best)} | "
                     f"{of_medians:.2f} ({of_minima:.2f}) | {others} | {ours['memory_mib']:.0f}, "
                     f"{best['memory_mib']:.0f}, {leanest['memory_mib']:.0f} ({leanest['name']}) | {starts} |")
    missing = {}
    for row in result["rows"]:
        for who, why in row["left_out"]:
            missing.setdefault((who, why), []).append(f"{row['phase']} {row['model']} b{row['batch']}")
    if missing:
        page += ["", "Left out:", ""]
        page += [f"* {who}: {why} ({', '.join(where)})" for (who, why), where in missing.items()]
    return "\n".join(page) + "\n"


def replace(path, text):
    """What is there is kept, whatever comes: the file is that of before, or the new one."""
    with open(path + ".tmp", "w") as file:
        file.write(text)
    os.replace(path + ".tmp", path)


def write_section(path, section):
    """Replaces what stands between the two lines; only looks for them where there is nothing to write."""
    with open(path) as file:
        page = file.read()
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(f'"{path}" has not one line "{BEGIN}" and, after it, one "{END}"')
    if section is None:
        return
    replace(path, page[: page.index(BEGIN) + len(BEGIN)] + "\n\n" + section + "\n" + page[page.index(END):])
