//go:build unix

package recorder

import (
	"os"
	"syscall"
)

// lockFile keeps other processes from recording to the file until this one finishes.
func lockFile(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
