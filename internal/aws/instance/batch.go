package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

const (
	// callTimeout bounds a call that serves several callers, retries included.
	callTimeout = 4 * time.Minute
	// maxFilterValues is EC2's limit for the values of one filter.
	maxFilterValues = 200
	// maxConcurrentSingleCalls limits how many single calls are in flight for instances that a batched call did not answer.
	maxConcurrentSingleCalls = 10
)

type (
	described  = batch.Result[ec2types.Instance]
	terminated = batch.Result[struct{}]
)

// describeBatch describes instances by ID. It uses a filter, because EC2 rejects a whole call with an unknown instance
// ID. Instances that are missing in the response are described one by one, unless they are too new to be visible; so
// are all of them when EC2 rejects the call. After a failure or throttling that would add load, so the error is
// returned.
func (s *Instances) describeBatch(ctx context.Context, _ struct{}, ids []string) []described {
	known, errs := map[string]ec2types.Instance{}, map[string]error{}
	distinct := slices.Compact(slices.Sorted(slices.Values(ids)))
	unseen := map[string]bool{}
	for some := range slices.Chunk(distinct, maxFilterValues) {
		found, err := s.pages(ctx, &ec2.DescribeInstancesInput{
			Filters: []ec2types.Filter{network.Filter("instance-id", some...)}, MaxResults: aws.Int32(1000),
		})
		for _, i := range found {
			known[aws.ToString(i.InstanceId)] = i
		}
		for _, id := range some {
			if err != nil && (ofAll(err) || awserrors.Is(err, awserrors.Unauthorized)) { // no policy is about single instances
				errs[id] = err
			}
			unseen[id] = err == nil && s.notYetVisible(id)
		}
	}
	var mu sync.Mutex
	forEachPending(distinct, func(id string) bool {
		_, ok := known[id]
		if !ok && unseen[id] {
			errs[id] = notFound(id) // too new to be visible; EC2 would answer the same for each of them
		}
		return !ok && errs[id] == nil
	}, func(id string) {
		i, err := s.describeOne(ctx, id)
		mu.Lock()
		defer mu.Unlock()
		known[id], errs[id] = i, err
	})
	out := make([]described, len(ids))
	for n, id := range ids {
		out[n] = described{Value: known[id], Err: errs[id]}
	}
	return out
}

// describeOne describes one instance. The error is that of EC2 for an unknown ID, also if the response is empty.
func (s *Instances) describeOne(ctx context.Context, id string) (ec2types.Instance, error) {
	found, err := s.pages(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err == nil && len(found) == 0 {
		err = notFound(id)
	}
	if err != nil {
		return ec2types.Instance{}, err
	}
	return found[0], nil
}

// notFound is EC2's error for an unknown instance ID.
func notFound(id string) error {
	return &smithy.GenericAPIError{Code: "InvalidInstanceID.NotFound", Message: fmt.Sprintf("EC2 shows no instance %s", id)}
}

// notYetVisible reports whether this process has just launched an instance that EC2 has not shown since.
func (s *Instances) notYetVisible(id string) bool {
	_, fresh := s.launched.Get(id)
	_, shown := s.visible.Get(id)
	return fresh && !shown
}

// terminateBatch terminates instances. Instances without a terminating state in the response are terminated one by one;
// so are all of them when EC2 rejects the call.
func (s *Instances) terminateBatch(ctx context.Context, _ struct{}, all []identity.Owned) []terminated {
	states, err := s.terminate(ctx, all)
	out := make([]terminated, len(all))
	if err != nil && (len(all) == 1 || ofAll(err)) {
		for n := range out {
			out[n].Err = err
		}
		return out
	}
	numbers := make([]int, len(all))
	for n := range numbers {
		numbers[n] = n
	}
	over := func(n int) bool {
		id, err := all[n].ID(identity.Instance)
		return err == nil && (states[id] == cloudprovider.ShuttingDown || states[id] == cloudprovider.Terminated)
	}
	forEachPending(numbers, func(n int) bool { return !over(n) }, func(n int) { out[n].Err = s.terminateOne(ctx, all[n]) })
	return out
}

// ofAll reports whether the error of a batch is one of all its instances: a call for each would meet it, too.
func ofAll(err error) bool {
	return !awserrors.IsRejected(err) || awserrors.Is(err, awserrors.RateLimited) || awserrors.Is(err, awserrors.BadCredentials)
}

func (s *Instances) terminateOne(ctx context.Context, owned identity.Owned) error {
	states, err := s.terminate(ctx, []identity.Owned{owned})
	if err != nil {
		return err
	}
	for id, state := range states {
		if state != cloudprovider.ShuttingDown && state != cloudprovider.Terminated {
			return fmt.Errorf("EC2 accepted the termination of instance %s, but reports the state %s", id, state)
		}
	}
	if len(states) == 0 {
		return errors.New("EC2 accepted the termination of an instance, but does not report its state")
	}
	return nil
}

// terminate calls EC2, and returns the new states of the instances.
func (s *Instances) terminate(ctx context.Context, all []identity.Owned) (map[string]cloudprovider.State, error) {
	var ids []string
	for _, owned := range all {
		id, err := owned.ID(identity.Instance)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	answer, err := s.api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
	if err != nil {
		return nil, err
	}
	states := map[string]cloudprovider.State{}
	for _, change := range answer.TerminatingInstances {
		if change.CurrentState != nil {
			states[aws.ToString(change.InstanceId)] = cloudprovider.State(change.CurrentState.Name)
		}
	}
	return states, nil
}

// forEachPending runs do for each pending item, a few at a time.
func forEachPending[T any](all []T, open func(T) bool, do func(T)) {
	slots := make(chan struct{}, maxConcurrentSingleCalls)
	var done sync.WaitGroup
	var todo []T
	for _, item := range all {
		if open(item) {
			todo = append(todo, item)
		}
	}
	for _, item := range todo {
		slots <- struct{}{}
		done.Go(func() {
			do(item)
			<-slots
		})
	}
	done.Wait()
}

// parseSlots reads the tag with the empty slots of a batch launch. It skips what is not a number.
func parseSlots(tag string) (out []int) {
	for _, s := range strings.Fields(tag) {
		if n, err := strconv.Atoi(s); err == nil {
			out = append(out, n)
		}
	}
	return out
}
