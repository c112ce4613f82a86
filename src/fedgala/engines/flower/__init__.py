"""The engine of many machines, on Flower: the same server step and the same client step as on one machine.

Needs the extra ``fedgala[flower]``; nothing outside of this package imports it but the commands ``fedgala deploy``.
"""
