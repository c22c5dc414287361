//go:build !unix

package recorder

import "os"

// lockFile does nothing: the controller runs on Linux.
func lockFile(*os.File) error { return nil }
