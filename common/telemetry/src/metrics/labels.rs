//! The values of labels.

crier_base::text_enum! {
    /// The states of a job that `crier_jobs` counts.
    pub enum CountedState { Scheduled = "scheduled", Ready = "ready", Running = "running", Dead = "dead" }
}

crier_base::text_enum! {
    /// The outcome of a run of a job.
    pub enum JobOutcome {
        Done = "done",
        Retried = "retried",
        Dead = "dead",
        Cancelled = "cancelled",
        /// The run lost its lease, so its result was not stored.
        LostLease = "lost_lease",
    }
}

crier_base::text_enum! {
    /// Why a job was rescued.
    pub enum RescueReason {
        /// Its worker did not renew the lease.
        LeaseExpired = "lease_expired",
        /// It crashed too often and will not run again.
        Poison = "poison",
    }
}

crier_base::text_enum! {
    /// The class of the status of a platform's response; `error` if there was no response.
    pub enum StatusClass { Class2xx = "2xx", Class3xx = "3xx", Class4xx = "4xx", Class5xx = "5xx", Error = "error" }
}

impl StatusClass {
    pub fn of(status: Option<http::StatusCode>) -> Self {
        match status.map(|status| status.as_u16() / 100) {
            Some(2) => Self::Class2xx,
            Some(3) => Self::Class3xx,
            Some(4) => Self::Class4xx,
            Some(5) => Self::Class5xx,
            _ => Self::Error,
        }
    }
}

crier_base::text_enum! {
    /// The outcome of an attempt to send a reply.
    pub enum ReplyResult { Sent = "sent", Retried = "retried", Failed = "failed", Unknown = "unknown" }
}

crier_base::text_enum! {
    /// The outcome of a fetch of a feed.
    pub enum FetchOutcome {
        /// At least one article was added or changed.
        New = "new",
        Unchanged = "unchanged",
        Failed = "failed",
    }
}

crier_base::text_enum! {
    pub enum EndpointState { Active = "active", Inactive = "inactive", Disabled = "disabled" }
}

crier_base::text_enum! {
    /// The outcome of adding an image to the media library.
    pub enum IngestOutcome {
        Stored = "stored",
        Unsupported = "unsupported",
        TooLarge = "too_large",
        /// The storage of the workspace is full.
        Full = "full",
        Error = "error",
    }
}

crier_base::text_enum! {
    /// The type of a file in the media library.
    pub enum IngestedType { Image = "image", Video = "video" }
}

crier_base::text_enum! {
    /// How the bytes of a file reach the media library.
    pub enum ByteSource {
        /// A form with the whole file.
        Form = "form",
        /// A resumable upload.
        Resumable = "resumable",
        /// An import from a URL.
        Import = "import",
    }
}

crier_base::text_enum! {
    /// The outcome of an attempt to create the cover image of a video.
    pub enum CoverOutcome {
        Taken = "taken",
        /// ffmpeg returned no image, or could not run.
        Failed = "failed",
        TimedOut = "timed_out",
        /// The returned image was not accepted.
        Rejected = "rejected",
    }
}

crier_base::text_enum! {
    /// A kind of call to the file storage.
    pub enum StorageCall { Put = "put", Get = "get", Delete = "delete" }
}

crier_base::text_enum! {
    /// The outcome of a request to the AI provider.
    pub enum AiOutcome {
        Done = "done",
        /// The provider rejected the prompt.
        Refused = "refused",
        Unavailable = "unavailable",
        /// The response could not be used.
        Malformed = "malformed",
        TimedOut = "timed_out",
    }
}

crier_base::text_enum! {
    /// Why a span of a trace was not sent.
    pub enum SpanDropReason {
        /// Spans ended faster than the collector accepted them.
        QueueFull = "queue_full",
        /// The collector was unavailable for too long, or rejected the request.
        NotSent = "not_sent",
        /// The collector accepted the request, but not this span.
        Rejected = "rejected",
    }
}

crier_base::text_enum! {
    /// A server that a process needs.
    pub enum Dependency { Database = "database", Redis = "redis" }
}
