"""One short file per verb: carries values from room to room."""
