"""The composed model: the class ACES, the folder it is saved in, and how it is served."""
