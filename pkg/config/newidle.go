package config

// NewidleBalance says when a CPU that has nothing left to run looks for threads that wait on other
// CPUs.
type NewidleBalance string

// NewidleKernel leaves that to the kernel; with NewidleAlways it looks each time.
const (
	NewidleKernel NewidleBalance = "kernel"
	NewidleAlways NewidleBalance = "always"
)

// UnmarshalText reads "kernel" or "always".
func (n *NewidleBalance) UnmarshalText(text []byte) error {
	return choose(n, text, NewidleKernel, NewidleAlways)
}
