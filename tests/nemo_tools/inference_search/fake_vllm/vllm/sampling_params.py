class BeamSearchParams:
    pass
