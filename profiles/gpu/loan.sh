#!/usr/bin/env bash
# Rows of plans on a GPU machine that is lent for minutes, a command at a time; docs/gpu-plan.md says which rows.
#
#   loan.sh begin config/paper.yaml:mnist:cnn:0 ...    unpack what .gpu/ holds, then work in the background
#   loan.sh wait 500                                   until all rows are done, or for so many seconds
#
# A row is plan:task:variant; behind another colon stand its seeds, with commas, if not all of the plan's are meant.
# One row after another is trained, evaluated in the same process, and packed; the process of the next one stands ready.
# `wait` copies what is packed, and the log, into the folder OUT: each archive holds all finished runs of its plan. So a
# command that is cut off, or a machine that is taken back, costs the row at work and no other.
set -euo pipefail
folder=${LOAN:-$HOME/loan}
triton=${LOAN_TRITON:-/tmp/triton} # for tests elsewhere: the cache calls its files by the whole paths that they had
python=${PYTHON:-python3}

# An archive's one folder becomes the folder of this name, whole or not at all: what a command that is cut off leaves
# would be taken for whole by the next one.
unpack() {
  [ ! -d "$2" ] || return 0
  rm -rf "$2.part"
  mkdir -p "$2.part"
  tar xf "$1" -C "$2.part" --strip-components=1 ||
    { echo "loan.sh: $1 cannot be unpacked; carry it here again, then say begin again" >&2; exit 2; }
  mv "$2.part" "$2"
}

case ${1:?"say begin or wait"} in
begin)
  shift
  mkdir -p "$folder/packed"
  exec 9> "$folder/lock" # held from now on: the process in the background has it too, and whatever that starts
  flock -n 9 || { echo "loan.sh: rows are still at work; say wait first" >&2; exit 2; }
  unpack .gpu/capsbench-pack.tar.gz "$folder/capsbench-pack"
  [ ! -f .gpu/triton.tar.gz ] || unpack .gpu/triton.tar.gz "$triton"
  rm -f "$folder/done"
  # bash reads as it goes, and the next command may write over this file
  [ "$0" -ef "$folder/loan.sh" ] || cp "$0" "$folder/loan.sh"
  setsid nohup bash "$folder/loan.sh" rows "$@" >> "$folder/log" 2>&1 < /dev/null &
  ;;
rows)
  shift
  cd "$folder/capsbench-pack"
  export PYTHONPATH=$PWD:$PWD/site CAPSBENCH_DATA=$PWD/data PYTHONUNBUFFERED=1
  export TRITON_CACHE_DIR=$triton CAPSBENCH_CHECKPOINT_SECONDS=${CAPSBENCH_CHECKPOINT_SECONDS:-3000}
  work() {
    IFS=: read -r plan task variant seeds <<< "$1"
    name=$(basename "$plan" .yaml)
    begun=$SECONDS
    # shellcheck disable=SC2046  # a word for each seed is meant
    "$python" -m capsbench train "$plan" --task "$task" --variant "$variant" --evaluate \
      $(tr ',' '\n' <<< "$seeds" | sed '/./!d; s/^/--seed /') && code=0 || code=$?
    "$python" -m capsbench pack --results "${CAPSBENCH_RESULTS:-results}/$name" --to "$folder/$variant.tar.gz" &&
      mv "$folder/$variant.tar.gz" "$folder/packed/$name.tar.gz" || true
    ended=$(cat "$folder/ended" 2> /dev/null || echo 0) # of the row before, which this one may have waited for
    echo "== $1: exit code $code, $((SECONDS - (ended > begun ? ended : begun))) s"
    echo $SECONDS > "$folder/ended"
  }
  rm -f "$folder/ended"
  for row in "$@"; do
    work "$row" &
    now=$!
    [ -z "${before:-}" ] || wait "$before"
    before=$now
    # The next row's process loads torch beside this one, and then waits for the GPU, which this one must have by then.
    for _ in $(seq 30); do kill -0 "$now" 2> /dev/null || break; sleep 1; done
  done
  wait
  touch "$folder/done"
  ;;
wait)
  end=$((SECONDS + ${2:?"say for how many seconds"}))
  until [ -e "$folder/done" ] || [ $SECONDS -ge $end ]; do sleep 1; done
  [ ! -e "$folder/done" ] || flock "$folder/lock" true # it has ended, so that `begin` may be said next
  find "$folder/packed" -name '*.tar.gz' -exec cp {} "$OUT" \;
  cp "$folder/log" "$OUT/log"
  grep -v '^==' "$folder/log" | tail -n 3 || true
  grep '^==' "$folder/log" || true
  [ -e "$folder/done" ] && echo "all rows are done" || echo "still at work"
  ;;
*)
  echo "loan.sh: say begin or wait, not $1" >&2
  exit 2
  ;;
esac
