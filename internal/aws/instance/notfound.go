package instance

import "github.com/dovetail-k8s/dovetail/internal/cloudprovider"

// ErrUnknown is cloud.ErrNotFound of an instance that EC2 does not know. One that it knows to be terminated is gone for certain.
var ErrUnknown error = unknownError{}

type unknownError struct{}

func (unknownError) Error() string { return cloudprovider.ErrNotFound.Error() }
func (unknownError) Unwrap() error { return cloudprovider.ErrNotFound }
