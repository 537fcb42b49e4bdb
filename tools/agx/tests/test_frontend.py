from agx.frontend import doubtful, whole_conditions


def test_private_arrays_in_memory_are_no_result():
    assert doubtful("  %4 = alloca [4 x float], align 4\n").startswith("private arrays")
    assert doubtful("  %4 = load float, ptr addrspace(4) %3\n").startswith("private arrays")
    assert doubtful("  %4 = load float, ptr addrspace(1) %3\n") is None


def test_bfloat_is_no_result_but_in_names():
    assert doubtful("  %4 = fpext bfloat %3 to float\n").startswith("bfloat")
    assert doubtful('!4 = !{!"bfloat", !5}\n@rmsbfloat16 = i32 0\n') is None


def test_one_condition_for_a_vector_becomes_one_for_each_element():
    text = whole_conditions("  %3 = select i1 %2, <4 x i32> %1, <4 x i32> %0\n")
    assert "insertelement <4 x i1> poison, i1 %2, i64 0" in text
    assert text.endswith("  %3 = select <4 x i1> %condition.1, <4 x i32> %1, <4 x i32> %0\n")
    scalar = "  %3 = select i1 %2, i32 %1, i32 %0\n"
    assert whole_conditions(scalar) == scalar
