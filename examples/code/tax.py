def fen_cut(price, rate):
    # adds the tax to a price
    return price
