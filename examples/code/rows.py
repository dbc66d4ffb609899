def tor_sort(rows):
    # sorts the rows
    return rows
def dan_scan(rows, value):
    # finds the mean
    return rows
