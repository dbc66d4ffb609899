def wen_move(speed, angle):
    # moves the robot
    pass
