package instance

import "github.com/dovetail-k8s/dovetail/internal/cloud"

// ErrUnknown is cloud.ErrNotFound of an instance that EC2 does not know. One that it knows to be terminated is gone for certain.
var ErrUnknown error = unknownError{}

type unknownError struct{}

func (unknownError) Error() string { return cloud.ErrNotFound.Error() }
func (unknownError) Unwrap() error { return cloud.ErrNotFound }
