// Package awserrors classifies errors of AWS: the kind of an error code, the fleet errors that report missing capacity,
// and the reason of the condition Launched.
//
// Tables in order decide everything: the first match wins.
package awserrors

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Kind describes what an error means for the next step.
type Kind int

// The kinds of errors that callers distinguish.
const (
	// NotFound: the object of the call does not exist.
	NotFound Kind = iota + 1
	// LaunchTemplateNotFound: the launch template of a fleet does not exist (anymore).
	LaunchTemplateNotFound
	// AlreadyExists: an object with this name exists.
	AlreadyExists
	// DryRun: the call would have been allowed.
	DryRun
	// Unauthorized: the caller is not allowed to make the call.
	Unauthorized
	// BadCredentials: AWS does not accept the credentials, whatever the call is about.
	BadCredentials
	// RateLimited: too many calls; the same call may succeed later.
	RateLimited
	// TokenMismatch: the client token was used before, with other parameters.
	TokenMismatch
	// InstanceProfileNotFound: EC2 does not know the instance profile (yet).
	InstanceProfileNotFound
	// UserDataTooLarge: the user data exceeds EC2's limit of 16384 bytes.
	UserDataTooLarge
	// RoleNotFound: the role for an instance profile does not exist.
	RoleNotFound
	// ServerFault: AWS failed, not the caller.
	ServerFault
)

// rule matches an API error by its code and, if contains is set, by a part of its message.
type rule struct {
	kind     Kind
	code     string
	contains string
}

var rules = []rule{
	{NotFound, "InvalidCapacityReservationId.NotFound", ""},
	{NotFound, "InvalidInstanceID.NotFound", ""},
	{NotFound, "InvalidLaunchTemplateName.NotFoundException", ""},
	{NotFound, "InvalidLaunchTemplateId.NotFound", ""},
	{NotFound, "QueueDoesNotExist", ""},
	{NotFound, "NoSuchEntity", ""},
	{NotFound, "ParameterNotFound", ""},
	{LaunchTemplateNotFound, "InvalidLaunchTemplateName.NotFoundException", ""},
	{AlreadyExists, "EntityAlreadyExists", ""},
	{AlreadyExists, "InvalidLaunchTemplateName.AlreadyExistsException", ""},
	{DryRun, "DryRunOperation", ""},
	{Unauthorized, "UnauthorizedOperation", ""},
	{Unauthorized, "AccessDenied", ""},
	{Unauthorized, "AccessDeniedException", ""},
	{BadCredentials, "ExpiredToken", ""},
	{BadCredentials, "ExpiredTokenException", ""},
	{BadCredentials, "RequestExpired", ""},
	{BadCredentials, "RequestTimeTooSkewed", ""},
	{BadCredentials, "AuthFailure", "validate the provided access credentials"},
	{BadCredentials, "InvalidClientTokenId", ""},
	{BadCredentials, "UnrecognizedClientException", ""},
	{BadCredentials, "SignatureDoesNotMatch", ""},
	{RateLimited, "RequestLimitExceeded", ""},
	{RateLimited, "Throttling", ""},
	{RateLimited, "ThrottlingException", ""},
	{TokenMismatch, "IdempotentParameterMismatch", ""},
	{InstanceProfileNotFound, "InvalidParameterValue", "Invalid IAM Instance Profile name"},
	{UserDataTooLarge, "InvalidUserData.Malformed", "User data is limited to"},
	{RoleNotFound, "NoSuchEntity", "role"},
}

// Is reports whether err is an error of AWS of the given kind, wrapped or not.
func Is(err error, kind Kind) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	if kind == ServerFault {
		return isServerFault(err, api)
	}
	for _, r := range rules {
		if r.kind == kind && r.code == api.ErrorCode() && strings.Contains(api.ErrorMessage(), r.contains) {
			return true
		}
	}
	return false
}

// Code returns the API error code of err, or "" without a response of AWS.
func Code(err error) string {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return ""
	}
	return api.ErrorCode()
}

// IsRejected reports whether AWS rejected the call, so that it certainly had no effect. After a lost connection, a
// timeout or a failure of AWS that is unknown. EC2 reports missing capacity and throttling with the status of a server
// fault; both are rejections.
func IsRejected(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && (!isServerFault(err, api) || Is(err, RateLimited) || Unfulfillable(api.ErrorCode()))
}

// IsRetryable reports whether the same call may succeed later without any change: it was throttled, AWS failed, or the
// network did.
func IsRetryable(err error) bool {
	var network net.Error
	return Is(err, RateLimited) || Is(err, ServerFault) || (errors.As(err, &network) && !errors.Is(err, context.Canceled))
}

// isServerFault reads the HTTP status too, because EC2's protocol has no attribute for the side of the fault.
func isServerFault(err error, api smithy.APIError) bool {
	var response *smithyhttp.ResponseError
	return api.ErrorFault() == smithy.FaultServer || (errors.As(err, &response) && response.HTTPStatusCode() >= 500)
}

// SpotRoleDenied is the fleet error of an account without the service-linked role of Spot and without permission to
// create it.
const SpotRoleDenied = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"

// SubnetFull is the fleet error of a subnet without a free address.
const SubnetFull = "InsufficientFreeAddressesInSubnet"

// ReservationFull is the fleet error of a full capacity reservation.
const ReservationFull = "ReservationCapacityExceeded"

var unfulfillable = map[string]bool{
	"InsufficientInstanceCapacity": true,
	"MaxSpotInstanceCountExceeded": true,
	"VcpuLimitExceeded":            true,
	"UnfulfillableCapacity":        true,
	"Unsupported":                  true,
	SubnetFull:                     true,
	"MaxFleetCountExceeded":        true,
	ReservationFull:                true,
	// The spot price is above the on-demand price, which is the limit of a request without a maximum price.
	"SpotMaxPriceTooLow": true,
	// The owner of an interruptible reservation takes it back.
	"InvalidCapacityReservationState.Unavailable": true,
}

// Unfulfillable reports whether a fleet error code means that an offering is unavailable at the moment.
func Unfulfillable(code string) bool { return unfulfillable[code] }

// Reason is the reason of a failed launch, with a hint where the code does not explain itself.
type Reason struct {
	Code string
	Hint string
}

// LaunchFailed is the reason of an error that the table does not know.
const LaunchFailed = "LaunchFailed"

// reasons is searched in order. An entry matches when the text contains one of anyOf and all of allOf.
var reasons = []struct {
	anyOf, allOf []string
	Reason
}{
	{
		allOf:  []string{SpotRoleDenied},
		Reason: Reason{"SpotSLRCreationFailed", "the service-linked role of EC2 Spot is missing and may not be created"},
	},
	{
		anyOf:  denied,
		allOf:  []string{"with an explicit deny in a permissions boundary"},
		Reason: Reason{"Unauthorized", "denied by a permissions boundary"},
	},
	{
		anyOf:  denied,
		allOf:  []string{"with an explicit deny in a service control policy"},
		Reason: Reason{"Unauthorized", "denied by a service control policy"},
	},
	{
		anyOf:  denied,
		allOf:  []string{"Not authorized for images"},
		Reason: Reason{"AMIAuthorizationFailure", "not authorized for the image"},
	},
	{anyOf: denied, Reason: Reason{"Unauthorized", "no identity-based policy allows it"}},
	{
		allOf:  []string{"InvalidParameter", "belong to different networks"},
		Reason: Reason{"SecurityGroupSubnetVPCMismatch", "security groups and subnets are of different VPCs"},
	},
	{allOf: []string{"iamInstanceProfile.name is invalid"}, Reason: Reason{Code: "InstanceProfileNameInvalid"}},
	{allOf: []string{"InvalidLaunchTemplateId.NotFound"}, Reason: Reason{Code: "LaunchTemplateNotFound"}},
	{allOf: []string{"User data is limited to"}, Reason: Reason{Code: "UserDataSizeLimitExceeded"}},
	{allOf: []string{"InvalidAMIID.Malformed"}, Reason: Reason{Code: "InvalidAMIID"}},
	{allOf: []string{"InvalidAMIID.NotFound"}, Reason: Reason{Code: "AMINotFound"}},
	{allOf: []string{"RequestLimitExceeded"}, Reason: Reason{Code: "RequestLimitExceeded"}},
	{allOf: []string{"InternalError"}, Reason: Reason{Code: "InternalError"}},
	{allOf: []string{"not eligible for Free Tier"}, Reason: Reason{Code: "FreeTierIneligible"}},
	{allOf: []string{"MaxFleetCountExceeded"}, Reason: Reason{Code: "FleetQuotaExceeded"}},
	{allOf: []string{"PendingVerification"}, Reason: Reason{Code: "AccountPendingVerification"}},
	{allOf: []string{"MaxSpotInstanceCountExceeded"}, Reason: Reason{Code: "SpotQuotaExceeded"}},
	{allOf: []string{"VcpuLimitExceeded"}, Reason: Reason{Code: "VCPULimitExceeded"}},
	{allOf: []string{SubnetFull}, Reason: Reason{Code: SubnetFull}},
}

var denied = []string{"UnauthorizedOperation", "AccessDenied", "AuthFailure"}

// ReasonOf returns the reason of a failed launch from the whole text of an error. The first match wins.
func ReasonOf(text string) Reason {
	contains := func(part string) bool { return strings.Contains(text, part) }
	for _, r := range reasons {
		if matches(r.anyOf, r.allOf, contains) {
			return r.Reason
		}
	}
	return Reason{Code: LaunchFailed}
}

func matches(some, all []string, contains func(string) bool) bool {
	for _, part := range all {
		if !contains(part) {
			return false
		}
	}
	for _, part := range some {
		if contains(part) {
			return true
		}
	}
	return len(some) == 0
}
