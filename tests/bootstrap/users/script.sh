#!/bin/bash
echo "it's $HOSTNAME: `date` $(id) \\ 'quoted'" >> /var/log/mine.log
sysctl -w fs.inotify.max_user_watches=524288
