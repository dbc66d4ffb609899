def fen_rate(price, rate):
    # adds the tax to a price
    return price
