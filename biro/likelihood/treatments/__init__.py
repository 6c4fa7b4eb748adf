"""How the gains of antennas are treated: from a batch of parameter vectors to the log-likelihood."""
