"""What runs on which stack: everything on keras3 and keras2, and on tf_keras what the two do not show for it.

tf_keras runs the same bridge as keras2 and the same TensorFlow as keras3. A folder of tests that runs on tf_keras
therefore runs there:

- the guards of private parts, which fail when tf_keras changes, and the tests of the bridge's contract;
- the choice of the stack: how scripts import Keras, models of both Keras in one process, what a stack lacks;
- one test, or a few, of each feature from a user's call to its effect.

``ON_TF_KERAS`` names them. A file or a test that is named on the command line runs on every stack.
"""

from __future__ import annotations

import fnmatch
import os
from importlib.metadata import version
from typing import Mapping

import pytest

EVERY = ("*",)
# Patterns of names of tests, by a pattern of the name of their file.
ON_TF_KERAS: Mapping[str, tuple[str, ...]] = {
    # The bridge
    "test_*_privates.py": EVERY,
    "test_bridge_conformance.py": EVERY,
    "test_bridge_keras2_callbacks.py": EVERY,
    "test_bridge_keras2_functions.py": EVERY,
    "test_bridge_keras2_intercept.py": EVERY,
    "test_bridge_keras2_loss_scale.py": EVERY,
    "test_bridge_keras2_precision.py": ("test_loss_is_bit_identical*", "test_undo_restores*"),
    "test_bridge_keras2_refusals.py": ("test_layers_that_cannot_compute_in_float16*",),
    "test_bridge_keras2_saving.py": ("test_after_undo*", "test_saving_hdf5_warns*"),
    "test_bridge_keras2_strategy.py": EVERY,
    "test_bridge_keras2_unbuilt.py": ("test_an_unbuilt_model_is_settled*",),
    # The choice of the stack
    "test_faults_policy.py": ("test_models_of_both_keras_in_one_process", "test_a_config_after_the_model"),
    "test_optimizers.py": ("test_what_a_stack_lacks*", "test_the_same_weights_as_written_by_hand"),
    "test_kernels_knobs.py": ("test_both_settings_are_no_error_on_any_stack*",),
    "test_run.py": ("test_digits_under_the_embedded_default", "test_a_script_that_chooses_tf_keras_itself"),
    "test_run_scripts.py": (
        "test_however_keras_is_imported*",
        "test_the_other_keras_than_the_environment_means",
        "test_a_script_that_trains_models_of_both_keras",
    ),
    # One test of each feature
    "test_alarms.py": ("test_a_config_puts_alarms_into_the_evidence",),
    "test_audit.py": ("test_a_config_that_mends_the_model_leaves_nothing_to_find",),
    "test_callbacks_fit.py": ("test_monitors_serve_every_kind_of_model*", "test_conversions_are_counted"),
    "test_callbacks_settings.py": ("test_a_full_plan", "test_overflow_steps_are_counted_alike_on_every_keras"),
    "test_checkpoint_resume.py": ("test_the_loss_scale_goes_on_where_it_was",),
    "test_compile_ledger.py": ("test_each_length_is_compiled_in_the_step_that_has_it",),
    "test_faults_sessions.py": ("test_a_model_saved_and_loaded_between_fits",),
    "test_faults_steps.py": ("test_mixed_precision_and_skipped_steps_are_steps",),
    "test_fit_surroundings.py": EVERY,
    "test_gradient_monitor.py": ("test_a_config_puts_the_rows_into_the_evidence",),
    "test_input_settings.py": ("test_an_untouched_script_gets_them_and_they_are_seen",),
    "test_input_share.py": ("test_whatever_the_step_is*",),
    "test_islands.py": ("test_layers_are_constructed_as_islands",),
    "test_knobs_model.py": ("test_policy_before_the_layers", "test_retrofit_islands_and_loss_scale*"),
    "test_layer_figures.py": ("test_models_of_every_kind*",),
    "test_loss_scale_control.py": ("test_scale_and_tolerance_go_on_from_a_checkpoint",),
    "test_one_script.py": EVERY,  # several workers, ranks, parameter servers, and a worker that is killed
    "test_out_of_memory.py": ("test_a_config_carries_it_into_the_evidence",),
    "test_own_train_step.py": ("test_an_unscaled_step_is_refused_before_it_trains",),
    "test_padded_batches.py": ("test_under_a_plan_the_data_of_fit_are_filled_up*",),
    "test_precision_api.py": ("test_a_model_with_such_an_optimizer_trains_and_is_saved",),
    "test_rebatching.py": ("test_arrays_get_another_size_and_validation_keeps_its_own",),
    "test_recompute.py": ("test_half_precision_with_a_loss_scale",),
    "test_replay.py": ("test_the_layer_in_which_gradients_become_infinite_is_named*",),
    "test_sequences.py": ("test_an_untouched_script_is_served_and_the_padding_is_in_its_evidence",),
    "test_split_batches.py": ("test_the_update_is_that_of_the_whole_batch*",),
    "test_step_memory.py": ("test_a_script_is_looked_at_and_not_trained",),
    "test_watchdog.py": ("test_a_process_that_hangs_writes_its_stacks_and_ends",),
    "test_xla_cache.py": EVERY,  # keras2's TensorFlow has no such cache
    "test_xla_limit.py": ("test_a_step_within_the_limit_is_compiled",),
    "test_xla_remainder.py": ("test_a_script_trains_on_whole_batches_only*",),
    "test_xla_trial.py": ("test_the_trial_of_a_good_model_touches_nothing_and_is_done_once*",),
}


def is_tf_keras() -> bool:
    """Whether this test process runs on tf_keras; asks no TensorFlow, since tests without one ask too."""
    asked = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    return asked and not version("tensorflow").startswith("2.15")


def runs_on_tf_keras(file: str, test: str) -> bool:
    """Whether a test belongs to those that tf_keras runs too.

    Args:
        file: Name of its file, such as ``test_alarms.py``.
        test: Its name with parameters, such as ``test_xla[True]``.
    """
    patterns = [pattern for pattern in ON_TF_KERAS if fnmatch.fnmatchcase(file, pattern)]
    # Brackets of parameters would be classes of characters.
    return any(fnmatch.fnmatchcase(test.split("[")[0], name) for key in patterns for name in ON_TF_KERAS[key])


# For single tests of files that otherwise run on tf_keras, and for files that take minutes however they are asked for.
once_a_bridge = pytest.mark.skipif(is_tf_keras(), reason="slow, and keras2 runs the same bridge")
