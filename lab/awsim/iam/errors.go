package iam

import (
	"net/http"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

func noSuchEntity(format string, args ...any) error {
	return protocol.Errorf("NoSuchEntity", format, args...).WithStatus(http.StatusNotFound)
}

func noRole(name string) error {
	return noSuchEntity("The role with name %s cannot be found.", name)
}

func noProfile(name string) error {
	return noSuchEntity("Instance Profile %s cannot be found.", name)
}

func alreadyExists(format string, args ...any) error {
	return protocol.Errorf("EntityAlreadyExists", format, args...).WithStatus(http.StatusConflict)
}

func deleteConflict(what string) error {
	return protocol.Errorf("DeleteConflict", "Cannot delete entity, must %s first.", what).WithStatus(http.StatusConflict)
}

func limitExceeded(quota string, limit int) error {
	return protocol.Errorf("LimitExceeded", "Cannot exceed quota for %s: %d", quota, limit).WithStatus(http.StatusConflict)
}

func invalid(format string, args ...any) error {
	return protocol.Errorf("ValidationError", format, args...)
}
