package awsim_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

func TestFaultsByDescription(t *testing.T) {
	create := func(t *testing.T, c *ec2.Client, name string) error {
		t.Helper()
		_, err := c.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
			LaunchTemplateName: &name, LaunchTemplateData: &types.RequestLaunchTemplateData{InstanceType: "m5.large"},
		})
		return err
	}
	exists := func(t *testing.T, c *ec2.Client, name string) bool {
		t.Helper()
		_, err := c.DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{name}})
		return err == nil
	}
	t.Run("an error, twice", func(t *testing.T) {
		w := awsimtest.Start(t)
		c := ec2.NewFromConfig(w.Config)
		if err := w.Sim.InjectSpec("ec2.CreateLaunchTemplate=RequestLimitExceeded,times=2"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"RequestLimitExceeded", "RequestLimitExceeded", ""} {
			if got := awsimtest.Code(create(t, c, "one")); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
	t.Run("a service, without end, with a message", func(t *testing.T) {
		w := awsimtest.Start(t)
		c := ec2.NewFromConfig(w.Config)
		if err := w.Sim.InjectSpec("ec2.*=OptInRequired,status=401,message=Subscribe, please"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := create(t, c, "one"); err == nil || !strings.Contains(err.Error(), "StatusCode: 401") ||
				!strings.Contains(err.Error(), "OptInRequired: Subscribe, please") {
				t.Errorf("got %v", err)
			}
		}
	})
	t.Run("all actions that begin with a word, for a while", func(t *testing.T) {
		w := awsimtest.Start(t)
		c := ec2.NewFromConfig(w.Config)
		if err := w.Sim.InjectSpec("ec2.Describe*=InternalError,for=300ms"); err != nil {
			t.Fatal(err)
		}
		if err := create(t, c, "one"); err != nil || exists(t, c, "one") {
			t.Errorf("another action: %v; the template is described: %v", err, exists(t, c, "one"))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for !exists(t, c, "one") && ctx.Err() == nil {
		}
		if ctx.Err() != nil {
			t.Error("the fault does not end")
		}
	})
	t.Run("no connection", func(t *testing.T) {
		w := awsimtest.Start(t)
		c := ec2.NewFromConfig(w.Config)
		if err := w.Sim.InjectSpec("ec2.CreateLaunchTemplate=refuse"); err != nil {
			t.Fatal(err)
		}
		err := create(t, c, "one")
		if err == nil || !strings.Contains(err.Error(), "StatusCode: 0,") || exists(t, c, "one") {
			t.Errorf("got %v; the template exists: %v", err, exists(t, c, "one"))
		}
	})
	t.Run("no answer", func(t *testing.T) {
		w := awsimtest.Start(t)
		c := ec2.NewFromConfig(w.Config)
		if err := w.Sim.InjectSpec("ec2.CreateLaunchTemplate=hang,times=1"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		name := "one"
		_, err := c.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
			LaunchTemplateName: &name, LaunchTemplateData: &types.RequestLaunchTemplateData{InstanceType: "m5.large"},
		})
		if !errors.Is(err, context.DeadlineExceeded) || exists(t, c, name) {
			t.Errorf("error %v; the call has taken effect: %v", err, exists(t, c, name))
		}
	})
	t.Run("lost answer", func(t *testing.T) {
		w := awsimtest.Start(t)
		c := ec2.NewFromConfig(w.Config)
		if err := w.Sim.InjectSpec("ec2.CreateLaunchTemplate=lost"); err != nil {
			t.Fatal(err)
		}
		if err := create(t, c, "one"); awsimtest.Code(err) != "InternalError" || !exists(t, c, "one") {
			t.Errorf("got %v; is there: %v", err, exists(t, c, "one"))
		}
	})
	t.Run("closed connection", func(t *testing.T) {
		w := awsimtest.Start(t)
		c := ec2.NewFromConfig(w.Config)
		if err := w.Sim.InjectSpec("ec2.CreateLaunchTemplate=drop,times=1"); err != nil {
			t.Fatal(err)
		}
		if err := create(t, c, "one"); awsimtest.Code(err) != "?" || !exists(t, c, "one") {
			t.Errorf("got %v; is there: %v", err, exists(t, c, "one"))
		}
	})
	t.Run("a share of all calls", func(t *testing.T) {
		w := awsimtest.Start(t)
		c := ec2.NewFromConfig(w.Config)
		if err := w.Sim.InjectSpec("*=InternalError,share=0.25"); err != nil {
			t.Fatal(err)
		}
		failed := 0
		for range 200 {
			if _, err := c.DescribeRegions(t.Context(), &ec2.DescribeRegionsInput{}); err != nil {
				failed++
			}
		}
		if failed < 30 || failed > 70 {
			t.Errorf("%d of 200 calls failed, want about 50", failed)
		}
	})
	t.Run("slow", func(t *testing.T) {
		w := awsimtest.Start(t)
		c := ec2.NewFromConfig(w.Config)
		if err := w.Sim.InjectSpec("ec2.DescribeRegions=slow,delay=50ms,times=1"); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		awsimtest.OK(c.DescribeRegions(t.Context(), &ec2.DescribeRegionsInput{}))(t)
		if took := time.Since(begin); took < 50*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
	t.Run("pools", func(t *testing.T) {
		w := awsimtest.Start(t)
		for _, spec := range []string{"pool:m5.large/us-east-1a/spot=0", "pool:*/us-east-1b/*=InsufficientInstanceCapacity"} {
			if err := w.Sim.InjectSpec(spec); err != nil {
				t.Errorf("%s: %v", spec, err)
			}
		}
	})
}

func TestWrongFaults(t *testing.T) {
	w := awsimtest.Start(t)
	for spec, says := range map[string]string{
		"":                                      "CALL=ERROR is expected",
		"ec2.CreateFleet":                       "CALL=ERROR is expected",
		"CreateFleet=lost":                      "SERVICE.ACTION",
		"ec2.CreateFleets=lost":                 "the account has no ec2.CreateFleets",
		"s3.*=lost":                             "the account has no s3.*",
		"ec2.CreateFleet=lost,times=0":          "at least one",
		"ec2.CreateFleet=lost,share=2":          "1 at most",
		"ec2.CreateFleet=lost,after":            `unknown option "after"`,
		"ec2.CreateFleet=slow,delay=2":          "missing unit",
		"ec2.CreateFleet=slow,status=500":       "there is no error",
		"ec2.CreateFleet=X,status=200":          "400 to 599",
		"pool:m5.large=0":                       "TYPE/ZONE/LIFECYCLE",
		"pool:m5.large/us-east-1a/reserved=0":   "neither spot nor on-demand",
		"pool:m5.large/us-east-1a/spot=-1":      "-1 instances",
		"pool:m5.large/us-east-1a/spot=A,times": "no options",
		"quota:on-demand/standard=many":         "not a number of vCPUs",
		"quota:on-demand/m5=1":                  `class "m5" is none of standard`,
		"quota:reserved/p=1":                    "neither spot nor on-demand",
	} {
		if err := w.Sim.InjectSpec(spec); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", spec, err, says)
		}
	}
}
