package vm

import (
	"debug/elf"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-dev/sluice/test/runtime"
)

// crioFolder is the folder of CRI-O's own programs in the guest.
const crioFolder = "bin/crio"

// crioFiles returns CRI-O, the programs that it and the tests' wrapper of runc call, and all their
// libraries, by their paths in the guest.
func (g guest) crioFiles() (map[string]string, error) {
	files := map[string]string{}
	programs, err := runtime.CRIOPrograms(g.crun)
	if err != nil {
		return nil, err
	}
	for _, program := range programs {
		files[filepath.Join(crioFolder, filepath.Base(program))] = program
	}
	tools := []string{"sh", "sed", "grep", "sleep", "nsenter"}
	if g.crun { // crun talks to systemd by D-Bus; runc needs no daemon for that
		tools = append(tools, "dbus-daemon")
		for name, to := range map[string]string{"dbus.conf": "etc", "dbus.service": "etc/systemd/system", "dbus.socket": "etc/systemd/system"} {
			files[filepath.Join(to, name)] = name
		}
	}
	for _, name := range tools {
		program, err := exec.LookPath(name)
		if err != nil {
			return nil, err
		}
		programs = append(programs, program)
		files["bin/"+name] = program
	}
	for _, program := range programs {
		libraries, err := librariesOf(program)
		if err != nil {
			return nil, err
		}
		for _, library := range libraries {
			files[strings.TrimPrefix(library, "/")] = library
		}
	}
	return files, nil
}

// librariesOf returns the shared libraries of a program, including the loader.
func librariesOf(program string) ([]string, error) {
	file, err := elf.Open(program)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	direct, err := file.ImportedLibraries()
	if err := errors.Join(err, file.Close()); err != nil || len(direct) == 0 {
		return nil, err
	}
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", program, err)
	}
	var libraries []string
	for line := range strings.Lines(string(out)) { // "name => path (address)" or "path (address)"
		if strings.Contains(line, "not found") {
			return nil, fmt.Errorf("%s needs %s", program, strings.TrimSpace(line))
		}
		for field := range strings.FieldsSeq(line) {
			if filepath.IsAbs(field) {
				libraries = append(libraries, field)
			}
		}
	}
	return libraries, nil
}
