"""What runs on which stack: everything on keras3, nearly everything on keras2, and a part on tf_keras.

tf_keras runs the same bridge as keras2 and the same TensorFlow as keras3. A folder of tests that runs on tf_keras
therefore runs there:

- the guards of private parts, which fail when tf_keras changes, and the tests of the bridge's contract;
- the choice of the stack: how scripts import Keras, models of both Keras in one process, what a stack lacks;
- one test, or a few, of each feature from a user's call to its effect.

``ON_TF_KERAS`` names them; a new feature adds its line. ``ON_KERAS3_ALONE`` names what is the same whichever Keras is
installed: how processes are started, meet, are told to end and are reported. A file or a test that is named on the
command line runs on every stack.
"""

from __future__ import annotations

import fnmatch
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Mapping

import pytest

EVERY = ("*",)
# Patterns of names of tests, by a pattern of the name of their file.
ON_TF_KERAS: Mapping[str, tuple[str, ...]] = {
    # The bridge
    "test_*_gpu.py": EVERY,
    "test_*_privates.py": EVERY,
    "test_bridge_conformance.py": EVERY,
    "test_bridge_keras2_callbacks.py": EVERY,
    "test_bridge_keras2_functions.py": EVERY,
    "test_bridge_keras2_intercept.py": EVERY,
    "test_bridge_keras2_loss_scale.py": EVERY,
    "test_bridge_keras2_precision.py": ("test_loss_is_bit_identical*[[]functional]", "test_a_second_retrofit*"),
    "test_bridge_keras2_refusals.py": ("test_layers_that_cannot_compute_in_float16*",),
    "test_bridge_keras2_saving.py": ("test_after_undo*", "test_saving_hdf5_warns*"),
    "test_bridge_keras2_strategy.py": EVERY,
    "test_bridge_keras2_unbuilt.py": ("test_an_unbuilt_model_is_settled*",),
    # The choice of the stack
    "test_faults_policy.py": ("test_models_of_both_keras_in_one_process", "test_a_config_after_the_model"),
    "test_optimizers.py": ("test_what_a_stack_lacks*", "test_the_same_weights_as_written_by_hand"),
    "test_kernels_knobs.py": ("test_both_settings_are_no_error_on_any_stack*",),
    "test_run.py": ("test_digits_under_the_embedded_default",),
    "test_run_scripts.py": (
        "test_however_keras_is_imported*",
        "test_the_other_keras_than_the_environment_means",
        "test_a_script_that_trains_models_of_both_keras",
    ),
    "test_examples.py": EVERY,
    # One test of each feature
    "test_alarms.py": ("test_a_config_puts_alarms_into_the_evidence",),
    "test_audit.py": ("test_a_config_that_mends_the_model_leaves_nothing_to_find",),
    "test_callbacks_fit.py": ("test_monitors_serve_every_kind_of_model*", "test_conversions_are_counted"),
    "test_callbacks_settings.py": ("test_a_full_plan", "test_overflow_steps_are_counted_alike_on_every_keras"),
    "test_checkpoint_resume.py": ("test_the_loss_scale_goes_on_where_it_was",),
    "test_compile_ledger.py": ("test_each_length_is_compiled_in_the_step_that_has_it",),
    "test_either.py": ("test_a_compiled_step_selects*[[]adam]",),
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
    "test_outputs_alone.py": ("test_who_asks_for_this_model*",),
    "test_padded_batches.py": ("test_under_a_plan_the_data_of_fit_are_filled_up*",),
    "test_precision_api.py": ("test_a_model_with_such_an_optimizer_trains_and_is_saved",),
    "test_rebatching.py": ("test_arrays_get_another_size_and_validation_keeps_its_own",),
    "test_recompute.py": ("test_half_precision_with_a_loss_scale",),
    "test_reduction.py": ("test_settings_from_a_config_end_as_they_were_seen*", "test_gradients_travel_as_float16*"),
    "test_replay.py": ("test_the_layer_in_which_gradients_become_infinite_is_named*",),
    "test_sequences.py": ("test_an_untouched_script_is_served_and_the_padding_is_in_its_evidence",),
    "test_split_batches.py": ("test_the_update_is_that_of_the_whole_batch*",),
    "test_step_memory.py": ("test_a_script_is_looked_at_and_not_trained",),
    "test_step_speed.py": ("test_the_host_knows*", "test_calls_of_several_steps*"),
    "test_watchdog.py": ("test_a_process_that_hangs_writes_its_stacks_and_ends",),
    "test_xla_cache.py": EVERY,  # keras2's TensorFlow has no such cache
    "test_xla_limit.py": ("test_a_step_within_the_limit_is_compiled",),
    "test_xla_remainder.py": ("test_a_script_trains_on_whole_batches_only*",),
    "test_xla_trial.py": ("test_the_trial_of_a_good_model_touches_nothing_and_is_done_once*",),
}


# Patterns as above; a name with parameters is matched with them, "[" being written "[[]".
ON_KERAS3_ALONE: Mapping[str, tuple[str, ...]] = {
    "test_preflight.py": EVERY,  # its workers start no TensorFlow
    # How trials end; what a trial of a training finds is tried on both bridges.
    "test_batch_size.py": (
        "test_a_script_that_hangs*",
        "test_a_script_that_kills*",
        "test_an_error_of_the_script*",
        "test_the_hosts_memory*",
        "test_a_script_without_fit*",
        "test_a_config_that_cannot_work*",
        "test_trials_end_with_the_command*",
    ),
    # test_one_script kills a worker and ends one on both bridges.
    "test_launch_training.py": ("test_a_worker_dies*", "test_a_worker_that_hangs*"),
    "test_checkpoint.py": ("*[[]multi_worker_mirrored]",),
    "test_data_workers.py": ("test_files_that_are_insisted_on*", "test_workers_with_different_numbers*"),
    "test_parameter_server.py": ("test_a_server_ends_when*",),  # a server trains nothing and has no Keras
    "test_benchmark_monitors.py": EVERY,
    "test_ladder_runs.py": EVERY,  # how the processes of a ladder are made; what they train is that of tfvolta run
    # Two replicas or four: the arithmetic is the same, and Keras has no part in it.
    "test_reduction.py": ("*[[]4]", "*[[]*-4]"),
    "test_replicas.py": ("*[[]4]", "*[[]4-*"),
    # The command line, exit codes and evidence of scripts that end in the middle, or before any training
    "test_run.py": (
        "test_scripts_own_arguments*",
        "test_exit_codes*",
        "test_a_script_that_never_fits*",
        "test_unusable_input*",
        "test_a_refused_plan*",
        "test_missing_script*",
        "test_the_environment_is_contradicted*",
        "test_interrupted_and_killed*",
        "test_json_is_the_last_line*",
        "test_a_script_that_chooses_tf_keras_itself",
    ),
    "test_run_scripts.py": (
        "test_multiprocessing*",
        "test_training_in_a_forked_child*",
        "test_a_changed_working_directory*",
        "test_ends_in_the_middle",
        "test_exit_zero*",
        "test_a_syntax_error*",
        "test_a_broken_import*",
        "test_a_script_under_a_folder*",
    ),
}


def stack() -> str:
    """The stack of this test process, found without starting TensorFlow; keras3 where there is none."""
    try:
        old = version("tensorflow").startswith("2.15")
    except PackageNotFoundError:
        old = False
    asked = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    return "keras2" if old else "tf_keras" if asked else "keras3"


def _is_named(table: Mapping[str, tuple[str, ...]], file: str, test: str) -> bool:
    patterns = [name for key, names in table.items() if fnmatch.fnmatchcase(file, key) for name in names]
    return any(fnmatch.fnmatchcase(test if "[[]" in each else test.split("[")[0], each) for each in patterns)


def runs_on(stack: str, file: str, test: str) -> bool:
    """Whether a test of a folder runs on a stack.

    Args:
        stack: ``keras3``, ``tf_keras`` or ``keras2``.
        file: Name of its file, such as ``test_alarms.py``.
        test: Its name with parameters, such as ``test_xla[True]``.
    """
    if stack == "tf_keras":
        return _is_named(ON_TF_KERAS, file, test)
    return stack == "keras3" or not _is_named(ON_KERAS3_ALONE, file, test)


# For single tests of files that otherwise run on tf_keras, and for files that take minutes however they are asked for.
once_a_bridge = pytest.mark.skipif(stack() == "tf_keras", reason="slow, and keras2 runs the same bridge")
