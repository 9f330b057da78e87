# Commands load parts of the program when they need them: its files must not change while one runs. `serve` is restarted.
refuse_while_running() {
    for line in $(grep -las '^/usr/lib/migrator/bin/python3' /proc/[0-9]*/cmdline); do
        process=${line%/cmdline}
        [ "$process/root/usr/lib/migrator" -ef /usr/lib/migrator ] || continue # of another root
        words=$(tr '\0' ' ' <"$line" 2>/dev/null) || continue
        case $words in
        '' | *' serve '*) continue ;;
        esac
        echo "migrator: process ${process#/proc/} is running: ${words#* }" >&2
        echo "  next:  end it (Ctrl-C, or systemctl stop), repeat this, then give the same command again: it resumes" >&2
        return 1
    done
}

with_systemd() {
    [ ! -d /run/systemd/system ] || systemctl "$@" || true
}
