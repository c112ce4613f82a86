"""The text of the files in a deployment: start scripts, systemd units, a compose file, who copies what where."""

SCRIPT = """#!/bin/sh
# Starts {what}, and starts it again when it ends. Extra arguments go to the command.
cd "$(dirname "$0")" && exec fedgala deploy {command} . "$@"
"""

UNIT = """# Set User and the paths, copy to /etc/systemd/system, then: systemctl enable --now {name}
[Unit]
Description=fedgala {what}
After=network-online.target
Wants=network-online.target

[Service]
User=fedgala
WorkingDirectory=/opt/fedgala
ExecStart=/opt/fedgala/venv/bin/fedgala deploy {command}
Restart=always
RestartSec=15
KillMode=control-group
NoNewPrivileges=true
PrivateTmp=false
ProtectSystem=full

[Install]
WantedBy=multi-user.target
"""

COMPOSE = {
    "server": """# Needs an image `fedgala`: python:3.12-slim with pip install 'fedgala[flower]'; then docker compose up
services:
  superlink:
    image: fedgala
    command: ["fedgala", "deploy", "superlink", "/deployment"]
    volumes: ["./server:/deployment"]
    ports: ["{port}:{port}"]
    restart: always
""",
    "site": """  {name}:
    image: fedgala
    command: ["fedgala", "deploy", "site", "/deployment", "--data", "/pictures"]
    volumes: ["./sites/{name}:/deployment", "${{PICTURES_{name}:?folder of the pictures of {name}}}:/pictures:ro"]
    restart: always
""",
}

README = """# A fedgala deployment: server {host}:{port}, sites {sites}

| what | goes to | secret |
|---|---|---|
| `server/` | the machine that the sites reach as `{host}` | `server.key` |
| `sites/NAME/` | that site, and nobody else | `site.key` |
| `ca.key` | a safe: whoever has it can pretend to be the server | yes |
| `compose.yaml` | only where everything runs in containers on one machine | |

Copy over a channel you trust, keep the modes (`cp -p`, `scp -p`, `rsync -p`). Each machine needs
`pip install 'fedgala[flower]'`, the same version everywhere.

1. On the server: `fedgala deploy superlink server` (or `server/superlink.sh`, or the systemd unit in it). Open port
   {port} to the sites only: who reaches it can also start runs, see `docs/deploy.md`.
2. At each site: `fedgala deploy site sites/{first} --data /folder/of/its/pictures`. It tries again until the server is
   there. Nothing listens at a site; it only calls the server.
3. On the server: `fedgala deploy run server --rounds 20`. The same command goes on after any interruption.
4. `fedgala deploy status server` says who is there and how far it is.
"""
