package procfs

import (
	"github.com/sluice-dev/sluice/pkg/observe"
)

// Pressure reads /proc/pressure (Linux 4.20). Some distributions enable PSI only with psi=1 on
// the kernel's command line.
func (f *FS) Pressure(into *observe.PressureTotals) error {
	for _, one := range [...]struct {
		*file
		some, full *observe.Stall
	}{
		{&f.cpu, &into.CPU, nil},
		{&f.memory, &into.Memory, &into.MemoryFull},
		{&f.io, &into.IO, &into.IOFull},
	} {
		text, err := f.read(one.file, nil)
		if err != nil {
			return err
		}
		some, full, _ := observe.ParsePressure(text)
		*one.some = some
		if one.full != nil {
			*one.full = full
		}
	}
	return nil
}
