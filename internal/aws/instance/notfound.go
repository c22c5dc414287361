package instance

import "github.com/dovetail-k8s/dovetail/internal/cloudprovider"

// ErrUnknown is cloudprovider.ErrNotFound for an instance that EC2 does not know. An instance that EC2 shows as
// terminated is certainly terminated.
var ErrUnknown error = unknownError{}

type unknownError struct{}

func (unknownError) Error() string { return cloudprovider.ErrNotFound.Error() }
func (unknownError) Unwrap() error { return cloudprovider.ErrNotFound }
