"""Times single modules of a training after the job, with inputs of the recorded shapes."""
