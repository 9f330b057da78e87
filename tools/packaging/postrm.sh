with_systemd daemon-reload
