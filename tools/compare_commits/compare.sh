#!/bin/bash
# Is any step of the benchmark slower than it was at another commit? Builds the benchmark of both, measures them in
# turns, the other commit's twice, which shows the noise, and prints ratios. Exit status 1 if a step is slower by more
# than 2 % and what chance explains.
#
#   tools/compare_commits/compare.sh COMMIT [--rounds 11] [--models mlp,lenet] [--devices cpu:0 --devices cpu:0,cpu:1]
#
# The other commit is built in a worktree in the user's cache folder, which stays: a second run builds nothing.
set -euo pipefail
root=$(realpath -s "$(dirname "${BASH_SOURCE[0]}")/../..")

case ${1:-} in
  "" | --help | -h)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    exec python3 -B "$root/tools/compare_commits/compare.py" --help
    ;;
esac
commit=$(git -C "$root" rev-parse --verify "$1^{commit}")
shift

worktrees=${XDG_CACHE_HOME:-~/.cache}/bindery-commits # ~: whose home it is, also without HOME
worktree=$worktrees/$commit
if [ ! -d "$worktree" ]; then
  git -C "$root" worktree prune
  rm -rf "$worktree.new"
  git -C "$root" worktree add --quiet --force --detach "$worktree.new" "$commit"
  git -C "$root" worktree move "$worktree.new" "$worktree"
fi
# The user's own options hold for both.
if [ -e "$root/user.bazelrc" ]; then cp "$root/user.bazelrc" "$worktree/"; else rm -f "$worktree/user.bazelrc"; fi
for tree in "$worktree" "$root"; do
  (cd "$tree" && tools/bazel build --noshow_progress //tools:bench </dev/null)
done
exec python3 -B "$root/tools/compare_commits/compare.py" --before "$worktree/bazel-bin/tools/bench" \
  --now "$root/bazel-bin/tools/bench" "$@"
