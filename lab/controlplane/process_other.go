//go:build !linux

package controlplane

import "syscall"

// childAttributes gives a child a process group of its own, so that an interrupt from the keyboard
// reaches only the parent, which then stops its children in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
