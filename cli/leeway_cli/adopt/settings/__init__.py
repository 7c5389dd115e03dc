"""The settings of a cluster under Leeway's care, one file for the settings of each service.

A setting is a value with a key, and knows how it is read, written, removed and described. adopt
writes those that Leeway needs, release undoes what adopt recorded, and doctor compares.
"""
