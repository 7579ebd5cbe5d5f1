package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// Which messages a listener fails on: the first `fails` times (-1: always) on each whose name ends with `failing`.
// It takes `slowMs` for each call in any case.
type verdicts struct {
	lock       sync.Mutex
	fails      int
	failing    string
	delayLevel int
	isOrderly  bool
	slow       time.Duration
	suspendMs  int
	failed     map[string]int
}

func newVerdicts(o options) *verdicts {
	return &verdicts{
		fails:      o.number("fails", 0),
		failing:    o.text("failing", ""),
		delayLevel: o.number("delayLevel", 0),
		isOrderly:  o.text("listener", "concurrently") == "orderly",
		slow:       time.Duration(o.number("slowMs", 0)) * time.Millisecond,
		suspendMs:  o.number("suspendMs", 1000),
		failed:     map[string]int{},
	}
}

func (v *verdicts) result(ctx context.Context, messages []*primitive.MessageExt) consumer.ConsumeResult {
	time.Sleep(v.slow)
	if !v.isFailure(messages) {
		return consumer.ConsumeSuccess
	}
	if v.isOrderly {
		if orderly, found := primitive.GetOrderlyCtx(ctx); found {
			orderly.SuspendCurrentQueueTimeMillis = v.suspendMs
		}
		return consumer.SuspendCurrentQueueAMoment
	}
	if concurrently, found := primitive.GetConcurrentlyCtx(ctx); found {
		concurrently.DelayLevelWhenNextConsume = v.delayLevel
	}
	return consumer.ConsumeRetryLater
}

func (v *verdicts) isFailure(messages []*primitive.MessageExt) bool {
	v.lock.Lock()
	defer v.lock.Unlock()
	isFailure := false
	for _, message := range messages {
		name := describeBody(message.Body)["body"].(string)
		if v.fails == 0 || !strings.HasSuffix(name, v.failing) {
			continue
		}
		isFailure = isFailure || v.fails < 0 || v.failed[name] < v.fails
		v.failed[name]++
	}
	return isFailure
}
