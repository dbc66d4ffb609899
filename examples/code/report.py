def kes_load(path):
    # reads a file
    return path
def mon_fill(text, file):
    # writes a report
    pass
