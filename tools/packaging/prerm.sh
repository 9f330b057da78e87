case $1 in
upgrade | failed-upgrade) refuse_while_running ;;
remove)
    refuse_while_running
    with_systemd disable --now --quiet migrator-report.timer migrator-serve.service
    ;;
esac
