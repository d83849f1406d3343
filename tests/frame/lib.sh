# Sourced by the test scripts: counts checks and prints the closing line. The scripts run at the top
# of the repository and keep their files in $work, which is fresh and removed at the end.
set -u
cd "$(dirname "$0")/../.."
top=$PWD
passed=0
failed=0
mkdir -p build/test
work=$(mktemp -d "$top/build/test/tmp.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
LC_ALL=C
export LC_ALL

warn='-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wdouble-promotion -Wundef
    -Wswitch-enum -Werror'
warn_c="$warn -Wstrict-prototypes -Wmissing-prototypes"

pass() {
    passed=$((passed + 1))
}

# fail NAME [FILE]: FILE's first lines say why.
fail() {
    failed=$((failed + 1))
    echo "FAIL $1"
    [ $# -lt 2 ] || head -n 20 "$2" | sed 's/^/    /'
}

# check NAME COMMAND...: passes when the command succeeds; its output is shown when it does not.
check() {
    name=$1
    shift
    if "$@" > "$work/log" 2>&1; then pass; else fail "$name" "$work/log"; fi
}

# within SECONDS COMMAND...: seconds of the processor, as other programs may have it too; what waits
# for ever is ended as well.
within() (
    ulimit -t "$1"
    shift
    exec timeout 900 "$@"
)

# empty NAME: passes when the file $found, which holds findings, is empty.
found=$work/found
empty() {
    if [ -s "$found" ]; then fail "$1" "$found"; else pass; fi
}

# plant NAME FILE SED: a copy of gen/ in $work/gen with a change in gen/FILE. False when the change
# meets nothing.
plant() {
    rm -rf "$work/gen"
    cp -R gen "$work/gen"
    sed "$3" "gen/$2" > "$work/gen/$2"
    cmp -s "gen/$2" "$work/gen/$2" || return 0
    fail "$1: the fault is planted"
    return 1
}

finish() {
    echo "$passed passed, $failed failed"
    [ $failed = 0 ] && [ $passed != 0 ]
    exit
}
