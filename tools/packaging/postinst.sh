with_systemd daemon-reload
with_systemd try-restart migrator-serve.service migrator-page.service
