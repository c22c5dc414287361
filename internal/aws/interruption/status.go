package interruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// ImpairedFor sets how long a status check must fail before it counts. It filters out a single missed check.
const ImpairedFor = 2 * time.Minute

// impairedFilters find the impaired instances of an account. EC2 combines the values of one filter by "or" and several
// filters by "and", so each needs a query.
var impairedFilters = []ec2types.Filter{
	network.Filter("instance-status.status", "impaired"),
	network.Filter("system-status.status", "impaired"),
	network.Filter("event.code", "instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"),
}

// ImpairedInstances returns the running instances of the account and region with a problem that will not pass, by ID,
// and those with a status check that has begun to fail. The error is a cloudprovider.UnavailableError if access is
// denied.
func ImpairedInstances(
	ctx context.Context,
	api ec2.DescribeInstanceStatusAPIClient,
	now time.Time,
) ([]cloudprovider.Impairment, error) {
	seen := map[string]bool{}
	var out []cloudprovider.Impairment
	for _, filter := range impairedFilters {
		pages := ec2.NewDescribeInstanceStatusPaginator(api, &ec2.DescribeInstanceStatusInput{Filters: []ec2types.Filter{filter}})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, statusFailed(err)
			}
			for _, s := range page.InstanceStatuses {
				id := aws.ToString(s.InstanceId)
				if id == "" || seen[id] {
					continue
				}
				seen[id] = true
				if a := diagnose(s, now); len(a.Kinds) > 0 || a.Failing {
					out = append(out, a)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b cloudprovider.Impairment) int { return strings.Compare(a.InstanceID, b.InstanceID) })
	return out, nil
}

func statusFailed(err error) error {
	if awserrors.Is(err, awserrors.Unauthorized) {
		return &cloudprovider.UnavailableError{
			Reason: "AccessDenied", Err: err,
			Message: fmt.Sprintf(
				"the controller is not allowed to read the status of instances: allow ec2:DescribeInstanceStatus for its role:  %s",
				awserrors.WithoutRequestIDs(err),
			),
		}
	}
	return fmt.Errorf("describe the status of instances: %w", awserrors.WithoutRequestIDs(err))
}

// diagnose returns the problems of an instance.
func diagnose(s ec2types.InstanceStatus, now time.Time) cloudprovider.Impairment {
	out := cloudprovider.Impairment{InstanceID: aws.ToString(s.InstanceId)}
	var seen []string
	for _, check := range []struct {
		kind cloudprovider.InterruptionKind
		name string
		sum  *ec2types.InstanceStatusSummary
	}{
		{cloudprovider.InstanceStatusFailed, "instance status check", s.InstanceStatus},
		{cloudprovider.SystemStatusFailed, "system status check", s.SystemStatus},
	} {
		since, failing := impairedSince(check.sum)
		out.Failing = out.Failing || failing
		if failing && now.Sub(since) >= ImpairedFor {
			out.Kinds = append(out.Kinds, check.kind)
			seen = append(seen, fmt.Sprintf("%s failed since %s", check.name, since.UTC().Format(time.RFC3339)))
		}
	}
	for _, e := range s.Events {
		if completed(e) {
			continue
		}
		if !slices.Contains(out.Kinds, cloudprovider.EventScheduled) {
			out.Kinds = append(out.Kinds, cloudprovider.EventScheduled)
		}
		text := "scheduled event " + string(e.Code)
		if e.NotBefore != nil {
			text += " at " + e.NotBefore.UTC().Format(time.RFC3339)
		}
		seen = append(seen, text)
	}
	out.Seen = strings.Join(seen, ", ")
	return out
}

// impairedSince returns since when a check fails; the longest failing detail counts.
func impairedSince(sum *ec2types.InstanceStatusSummary) (since time.Time, failing bool) {
	if sum == nil {
		return time.Time{}, false
	}
	for _, d := range sum.Details {
		if d.Status == ec2types.StatusTypeFailed && d.ImpairedSince != nil && (!failing || d.ImpairedSince.Before(since)) {
			since, failing = *d.ImpairedSince, true
		}
	}
	return since, failing
}

// completed reports whether an event was completed or canceled: EC2 lists it for some time afterwards.
func completed(e ec2types.InstanceStatusEvent) bool {
	text := strings.ToLower(aws.ToString(e.Description))
	return strings.HasPrefix(text, "[completed]") || strings.HasPrefix(text, "[canceled]")
}
