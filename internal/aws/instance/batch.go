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
	// maxFilterValues is how many values EC2 takes in one filter.
	maxFilterValues = 200
	// maxConcurrentSingleCalls is how many calls are made at a time for what a common call did not answer.
	maxConcurrentSingleCalls = 10
)

type (
	described  = batch.Result[ec2types.Instance]
	terminated = batch.Result[struct{}]
)

// describeBatch describes instances by ID. It asks by a filter: where IDs are named as such, EC2 refuses the whole call for one
// that it does not know. Those that are not in the answer are asked for alone, unless they are so new that EC2 need not show them
// yet, and so are all of them when EC2 refuses the call. Where it failed, or was called too often, that would make it worse.
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
			if err != nil && !awserrors.IsRejected(err) || awserrors.Is(err, awserrors.RateLimited) {
				errs[id] = err
			}
			unseen[id] = err == nil && s.notYetVisible(id)
		}
	}
	var mu sync.Mutex
	forEachPending(distinct, func(id string) bool {
		_, ok := known[id]
		if !ok && unseen[id] {
			errs[id] = notFound(id) // it is as new as that; EC2 says the same of each of them alone
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

// describeOne describes one instance. The error is that of EC2 for an ID that it does not know, also where EC2 answers with
// nothing.
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

// notFound is the error of EC2 for an ID that it does not know.
func notFound(id string) error {
	return &smithy.GenericAPIError{Code: "InvalidInstanceID.NotFound", Message: fmt.Sprintf("EC2 shows no instance %s", id)}
}

// unshown reports whether this process has just launched an instance that EC2 has not shown since.
func (s *Instances) notYetVisible(id string) bool {
	_, fresh := s.launched.Get(id)
	_, shown := s.visible.Get(id)
	return fresh && !shown
}

// terminateBatch ends instances. What EC2 does not say it has ended is ended alone, and so is each when EC2 refuses the call.
func (s *Instances) terminateBatch(ctx context.Context, _ struct{}, all []identity.Owned) []terminated {
	states, err := s.terminate(ctx, all)
	out := make([]terminated, len(all))
	if err != nil && (len(all) == 1 || !awserrors.IsRejected(err) || awserrors.Is(err, awserrors.RateLimited)) {
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

// end calls EC2, and returns the states into which it has brought the instances.
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

// alone does, a few at a time, what is still to be done.
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

// parseSlots reads the tag with places that are left out of a launch. What is no number is none.
func parseSlots(tag string) (out []int) {
	for _, s := range strings.Fields(tag) {
		if n, err := strconv.Atoi(s); err == nil {
			out = append(out, n)
		}
	}
	return out
}
