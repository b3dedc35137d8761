"""What the words of a command line become before Hydra reads them."""

from torchlite import command_line


def test_values_inside_a_swept_group_wait_for_the_jobs() -> None:
    words = ["-m", "optimizer=sgd,rmsprop", "optimizer.momentum=0.8", "seed=1", "model.widths=[8,16]"]
    assert command_line.for_each_job(words) == [*words[:2], "optimizer.momentum=choice(0.8)", *words[3:]]
    assert command_line.for_each_job(words[1:]) == words[1:]
