"""The settings with which a cluster is under Leeway's care: desired, current, and the difference.

`settings` has the values, `desired` the settings that Leeway needs, `difference` the changes from
the current to the desired settings, `ports` the Protocols of those that read and write them. These
modules are pure; `leeway adopt`, `leeway release` and `leeway doctor` use them.
"""
