case $1 in
upgrade | failed-upgrade) refuse_while_running ;;
remove)
    refuse_while_running
    with_systemd disable --now --quiet migrator-report.timer migrator-publish.timer migrator-serve.service migrator-page.service
    ;;
esac
